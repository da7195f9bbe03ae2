"""Weights and moments of a source, put into an engine or the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ....spec.errors import InputError
from ....spec.model.layer_parameters import ParameterSpec
from ...engine.engine import Engine
from ...reference.model import Reference
from ...stage.initial_weights import parameter_name, tied_source
from ...stage.local_parameters import LocalParameter
from ...stage.weight_source import full_ranges
from ..loader import FoundCheckpoint
from ..manifest import RunFacts
from ..reference_state import fill_reference
from ..tensor_offsets import parameter_slice
from .dialect import MOMENTS
from .weights import ForeignWeights


def restore_foreign(engine: Engine, source: ForeignWeights) -> int:
    """Fill an engine's weights and AdamW moments; return the source's step.

    Args:
        engine: not yet stepped.
        source: of the plan's model.

    Raises:
        InputError: another optimizer, no moments, no step, or a state of a technique to restore.
    """
    if engine.plan.workload.optimizer != "adamw":
        given = engine.plan.workload.optimizer
        raise InputError("--optimizer", given, "adamw, whose moments the checkpoint has", "adamw")
    source.require_optimizer()
    step = source.step()
    for local in engine.parameters:
        if local.data.numel():
            local.data.copy_(_part(source, None, local, engine))
            state = {key: _part(source, key, local, engine).to(local.data) for key in MOMENTS}
            count = torch.tensor(float(step))
            engine.updater.load_optimizer_state(local, {"step": count, **state})
    engine.weights_changed()
    engine.step_index = step
    return step


def _part(source: ForeignWeights, key: str | None, local: LocalParameter, engine: Engine) -> Tensor:
    """A rank's part of a parameter or of a state of it."""
    index, spec = tied_source(engine.plan.model, local.layer, local.spec)
    box = parameter_slice(local, engine.process_groups)
    values = [
        _rows(source, key, index, spec, part.offsets, part.tensor.shape)
        for part in box.contiguous_slices()
    ]
    whole = values[0] if len(values) == 1 else torch.cat(values)
    return whole.view(local.data.shape)


def _rows(
    source: ForeignWeights,
    key: str | None,
    index: int,
    spec: ParameterSpec,
    offsets: tuple[int, ...],
    shape: torch.Size,
) -> Tensor:
    """A box of a parameter as it is saved: experts and their rows are one dimension."""
    ranges = tuple((at, at + n) for at, n in zip(offsets, shape, strict=True))
    if not spec.expert:
        return source.read(key, index, spec, ranges)
    rows, parts, (at, end) = spec.shape[1], [], ranges[0]
    while at < end:
        expert, first = divmod(at, rows)
        last = min(rows, first + end - at)
        inner = ((expert, expert + 1), (first, last), *ranges[1:])
        parts.append(source.read(key, index, spec, inner)[0])
        at += last - first
    return torch.cat(parts)


def fill_reference_from(reference: Reference, source: ForeignWeights) -> None:
    """Continue the single process from a source, as a resumed run does.

    Args:
        reference: not yet stepped.
        source: of the plan's model.
    """
    step = source.step()
    specs = {parameter_name(index, spec): (index, spec) for index, spec in source.parameters()}
    for name, parameter in reference.parameters.items():
        if not parameter.requires_grad:
            continue
        index, spec = specs[name]
        ranges = full_ranges(spec)
        with torch.no_grad():
            parameter.copy_(source.read_range(index, spec, ranges).view(parameter.shape))
        state = reference.optimizer.state[parameter]
        state["step"] = torch.tensor(float(step))
        for key in MOMENTS:
            value = source.read_state(key, index, spec, ranges)
            state[key] = value.to(parameter).view(parameter.shape)
    reference.step_index = step


def continue_reference(
    reference: Reference, begun_at: FoundCheckpoint | ForeignWeights | None, new_stage: bool
) -> None:
    """Continue the single process from what a run resumed from; a new stage counts from 0."""
    if isinstance(begun_at, ForeignWeights):
        fill_reference_from(reference, begun_at)
    elif begun_at is not None:
        fill_reference(reference, begun_at)
    if new_stage:
        reference.step_index = 0


def changed_groups(source: ForeignWeights, run: RunFacts) -> Iterator[str]:
    """A line for each setting of the source's optimizer that is not the run's."""
    for name, saved in source.group_settings().items():
        current: Any = run.optimizer.get(name)
        if current is not None and saved != current:
            yield f"optimizer.{name} is {current}, and was {saved} in the checkpoint"
