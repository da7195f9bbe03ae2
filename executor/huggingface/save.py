"""Export of a trained model as a transformers checkpoint.

Ranks gather one parameter at a time to rank 0, which writes it: no rank holds more than its shards,
a layer, and an unwritten file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...spec.model.layer_parameters import ParameterSpec
from ...spec.plan.plan import Plan
from ...spec.workload.training import Lora, adapter_specs
from ..engine.engine import Engine
from ..stage.local_parameters import gather_full
from .config import config_for, saved_config
from .families import layer_pieces, mapping, own_parameters, tensor_shapes
from .peft import CONFIG_NAME, STEM, adapted_modules, adapter_config
from .tokenizer import TokenizerFiles
from .writer import SHARD_BYTES, FolderWriter

ONE_FILE_BYTES = 1 << 62
"""PEFT reads adapters from one file."""


def save_hf(
    engine: Engine,
    target: Path,
    config: Mapping[str, Any] | None = None,
    tokenizer: TokenizerFiles | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write a run's weights in float32, between steps. Collective.

    ``target`` is missing or empty; a ``config`` of None is made from the model; the ``tokenizer``,
    which rank 0 has, goes beside the weights; a file has ``shard_bytes`` at most.

    Raises:
        NotBuiltError: a model that transformers has no class for.
        RunError: the folder cannot be written.
    """
    plan = engine.plan
    config = config_for(plan.model, plan.workload.seq_len) if config is None else config
    pieces, seq_len = mapping(config), plan.workload.seq_len
    writer: FolderWriter | None = None
    if engine.process_groups.rank == 0:
        layers = range(len(plan.model.layers()))
        shapes = {
            name: shape
            for index in layers
            for name, shape in tensor_shapes(plan.model, index, seq_len, pieces).items()
        }
        writer = FolderWriter(target, shapes, shard_bytes=shard_bytes)
    for index, values in gathered_layers(engine):
        if writer is None:
            continue
        tensors: dict[str, Tensor] = {}
        for spec, piece in layer_pieces(plan.model, index, seq_len, pieces):
            tensor = tensors.setdefault(piece.name, torch.empty(piece.shape))
            piece.put(values[spec.name], tensor)
        for name, tensor in tensors.items():
            writer.add(name, tensor)
    if writer is not None:
        copied, documents = tokenizer or TokenizerFiles()
        writer.finish({**documents, "config.json": saved_config(config)}, copied)


def save_adapters(
    engine: Engine,
    target: Path,
    lora: Lora,
    config: Mapping[str, Any],
    base: Path,
    tokenizer: TokenizerFiles | None = None,
) -> None:
    """Write a run's adapters as a PEFT folder, in float32. Collective.

    ``target`` is missing or empty; ``config`` and ``base`` are of the base checkpoint.

    Raises:
        RunError: the folder cannot be written.
    """
    plan, pieces = engine.plan, mapping(config)
    seq_len, count = plan.workload.seq_len, len(plan.model.layers())
    modules = [adapted_modules(plan.model, i, seq_len, pieces, lora) for i in range(count)]
    every = [module for of_layer in modules for module in of_layer]
    writer: FolderWriter | None = None
    if engine.process_groups.rank == 0:
        names = {n: s for m in every for n, s in zip(m.tensor_names, m.shapes, strict=True)}
        writer = FolderWriter(target, names, STEM, shard_bytes=ONE_FILE_BYTES)
    for index, values in gathered_layers(engine, adapters=True):
        if writer is None:
            continue
        for module in modules[index]:
            for name, tensor in zip(module.tensor_names, module.tensors(values), strict=True):
                writer.add(name, tensor)
    if writer is not None:
        copied, documents = tokenizer or TokenizerFiles()
        writer.finish({**documents, CONFIG_NAME: adapter_config(every, lora, str(base))}, copied)


def gathered_layers(
    engine: Engine, adapters: bool = False
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Whole parameters by layer on rank 0's host, between steps. Collective.

    Empty on other ranks; adapters alone if ``adapters``.
    """
    plan = engine.plan
    stages = _stages_of_layers(plan)
    for index in range(len(plan.model.layers())):
        specs = own_parameters(plan.model, index, plan.workload.seq_len)
        lora = plan.workload.layer_trainings(plan.model)[index].adapters
        if adapters:
            specs = [x for spec in specs for x in (adapter_specs(spec, lora) if lora else ())]
        values = {}
        for spec in specs:
            value = _gathered_parameter(engine, index, spec, stages[index])
            if value is not None:
                values[spec.name] = value
        yield index, values


def _gathered_parameter(
    engine: Engine, index: int, spec: ParameterSpec, stage: int
) -> Tensor | None:
    """One whole parameter on rank 0, None elsewhere; other stages do nothing."""
    process_groups, device = engine.process_groups, engine.options.device
    value: Tensor | None = None
    if process_groups.stage == stage:
        parameters = (*engine.parameters, *engine.frozen)
        local = next(p for p in parameters if (p.layer, p.spec) == (index, spec))
        value = gather_full(local, local.data, process_groups)
        if process_groups.rank and process_groups.local_rank == 0:
            dist.send(value.contiguous(), dst=0)
    if process_groups.rank:
        return None
    if value is None:
        value = torch.empty(spec.shape, device=device)
        dist.recv(value, src=process_groups.layout[stage][0])
    return value.to("cpu")


def _stages_of_layers(plan: Plan) -> dict[int, int]:
    return {
        index: number
        for number, stage in enumerate(plan.program.stages)
        for part in stage.virtual_stages
        for index, _, _ in plan.chunk_layers(part)
    }
