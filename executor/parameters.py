"""Initial weights that depend on seed and model only, and their place under a strategy.

Every parameter has its own random stream, seeded by the run's seed and the parameter's name,
so a rank can make just the part it holds and any plan starts from the same model.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from ..spec.model import Layer, ModelSpec
from ..spec.parameters import ParameterSpec, layer_parameters, split_range
from ..spec.shared_bias import TABLE, table_blocks
from ..spec.towers import shared_tables
from .models.layer import LayerModule
from .models.parallel import TensorParallel

INITIAL_STD = 0.02
TOKEN_WEIGHT = "tokens.weight"
TIED_WEIGHT = "projection.weight"
TABLES = (TOKEN_WEIGHT, TIED_WEIGHT)
"""Names of a vocabulary table that layers may share."""


def parameter_name(layer_index: int, spec: ParameterSpec) -> str:
    """The name of a parameter in the whole model, whatever the plan."""
    return f"layers.{layer_index}.{spec.name}"


def initial_value(spec: ParameterSpec, name: str, seed: int) -> Tensor:
    """The whole initial tensor in float32 on the CPU."""
    if spec.initial == "ones":
        return torch.ones(spec.shape)
    if spec.initial == "zeros":
        return torch.zeros(spec.shape)
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.empty(spec.shape).normal_(std=INITIAL_STD, generator=generator)


def fill_layer(
    module: LayerModule,
    model: ModelSpec,
    layer_index: int,
    layer: Layer,
    tp: TensorParallel,
    seq_len: int,
    seed: int,
    device: torch.device,
) -> None:
    """Give a layer module its parameters: this rank's slice of the initial values.

    Args:
        module: from ``build_layer``.
        model: the whole model (tied weights are seeded by the embedding's name).
        layer_index: the layer's number in the model.
        layer: the layer.
        tp: tensor-parallel ranks.
        seq_len: rows of a position table whose length the model leaves open.
        seed: of the run.
        device: where parameters live.
    """
    for spec in layer_parameters(layer, seq_len):
        name = parameter_name(*tied_source(model, layer_index, spec))
        value = local_slice(initial_value(spec, name, seed), spec, tp)
        holder, kind = module.holder(spec.name)
        holder.register_parameter(kind, nn.Parameter(value.to(device)))


def local_slice(whole: Tensor, spec: ParameterSpec, tp: TensorParallel) -> Tensor:
    """The part of a whole parameter (or gradient) that a tensor-parallel rank holds."""
    if spec.split_dim is None or tp.size == 1:
        return whole
    start, stop = split_range(whole.shape[spec.split_dim], tp.size, tp.rank)
    return whole.narrow(spec.split_dim, start, stop - start).clone()


def tied_source(
    model: ModelSpec, layer_index: int, spec: ParameterSpec
) -> tuple[int, ParameterSpec]:
    """Where a parameter's value comes from: the first layer that has it, or the layer itself."""
    if spec.name == TABLE:
        return table_blocks(model).get(layer_index, layer_index), spec
    if spec.name not in TABLES:
        return layer_index, spec
    tables = shared_tables(model)
    if layer_index not in tables:
        return layer_index, spec
    return tables[0], ParameterSpec(name=TOKEN_WEIGHT, shape=spec.shape, split_dim=0)
