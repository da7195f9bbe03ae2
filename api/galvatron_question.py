"""A problem of ours as a question under Galvatron's costs, or why it is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..costmodel.galvatron.job import MB, GalvatronJob
from ..datasets.galvatron.read import read_profile
from ..spec.errors import InputError
from ..spec.model import BlockLayer, ModelSpec, MultiTokenLayer
from ..spec.parameters import layer_elements
from .inputs import Problem

ALIKE, MEASURED_ALIKE = 0.01, 0.1
"""Relative distance in parameters within which neighbouring blocks are one type of layer, and
within which a profile's layer is taken to be the model's."""
FORMATS = ("bf16", "fp16", "fp32")
OPTIMIZERS = ("adamw", "adam")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerType:
    """Neighbouring blocks that Galvatron measures as one: how many, how large, on what."""

    count: int
    hidden: int
    seq_len: int
    parameters: int


def galvatron_job(problem: Problem, folder: str | Path) -> GalvatronJob:
    """The question.

    Args:
        problem: what is asked.
        folder: what Galvatron's profilers wrote.

    Raises:
        InputError: what its costs do not speak of, or a profile of something else.
    """
    _refuse_other_training(problem)
    group = problem.cluster.groups[0]
    if len(problem.cluster.groups) > 1 or group.device_count & (group.device_count - 1):
        given = f"{problem.cluster.device_count} devices in {len(problem.cluster.groups)} groups"
        allowed = "one group of 2, 4, 8, … devices under Galvatron's costs"
        raise InputError("--cluster", given, allowed, "--costs ours")
    types = layer_types(problem.model, problem.workload.seq_len)
    dtype = problem.workload.dtype.param
    profile = read_profile(
        folder,
        problem.model.name,
        dtype,
        tuple(kind.seq_len for kind in types),
        group.nodes,
        group.devices_per_node,
    )
    for number, (kind, layer) in enumerate(zip(types, profile.model.layers, strict=True)):
        own_mb = kind.parameters * 4 / MB
        if abs(layer.parameter_mb / own_mb - 1) > MEASURED_ALIKE:
            where = f"{profile.files[1]}: layertype_{number}_sp: parameter_size"
            allowed = f"about the {own_mb:.0f} MB of {problem.model.name}'s blocks in 32 bits"
            raise InputError(where, layer.parameter_mb, allowed)
    return GalvatronJob(
        profile=profile,
        layers=tuple(kind.count for kind in types),
        hidden=tuple(kind.hidden for kind in types),
        seq_lens=tuple(kind.seq_len for kind in types),
        devices=group.device_count,
        global_batch=problem.workload.global_batch,
        half=dtype != "fp32",
    )


def layer_types(model: ModelSpec, seq_len: int) -> list[LayerType]:
    """The types of a model's blocks in order: neighbours of one tower and about one size.

    Raises:
        InputError: a model with layers that Galvatron has no place for.
    """
    found: list[LayerType] = []
    for tower in model.towers:
        tokens, first = tower.seq_len or seq_len, True
        for run in tower.layers:
            if isinstance(run.layer, MultiTokenLayer):
                given = f"{model.name} with multi-token heads"
                raise InputError("--model", given, "a model without under Galvatron's costs")
            if not isinstance(run.layer, BlockLayer):
                continue
            size = layer_elements(run.layer, tokens)
            last = found[-1] if found else None
            count = run.count
            if last and not first and abs(last.parameters - size) <= ALIKE * size:
                found.pop()
                count += last.count
            found.append(LayerType(count=count, hidden=run.layer.hidden, seq_len=tokens,
                                   parameters=size))  # fmt: skip
            first = False
    return found


def _refuse_other_training(problem: Problem) -> None:
    workload = problem.workload
    near = "--costs ours"
    if workload.dtype.shorthand not in FORMATS:
        allowed = f"{', '.join(FORMATS)} under Galvatron's costs"
        raise InputError("--dtype", workload.dtype.shorthand, allowed, near)
    if workload.optimizer not in OPTIMIZERS:
        allowed = f"{' or '.join(OPTIMIZERS)}, whose states its profiles hold"
        raise InputError("--optimizer", workload.optimizer, allowed, near)
    if workload.trainable != "full" or workload.frozen:
        raise InputError("--trainable", "a part of the model", "full under its costs", near)
