"""Initial weights from seed and model, and their part under a strategy.

Every parameter has its own random stream, seeded by the run's seed and its name, so a rank can make
just its part and any plan starts from the same model.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from ...spec.model.layer_parameters import ParameterSpec, split_range
from ...spec.model.model_spec import Layer, ModelSpec
from ...spec.model.towers import shared_tables
from ...spec.plan.relative_position_bias import TABLE, table_blocks
from ...spec.workload.training import (
    FULLY_TRAINED,
    LayerTraining,
    is_adapter,
    parameters_with_adapters,
)
from ..models.layer import LayerModule
from ..models.moe.dispatch import ExpertRanks
from ..models.tensor_parallel import TensorParallel
from .weight_source import Ranges, WeightSource, full_ranges

INITIAL_STD = 0.02
TOKEN_WEIGHT = "tokens.weight"
TIED_WEIGHT = "projection.weight"
TABLES = (TOKEN_WEIGHT, TIED_WEIGHT)
"""Names of a vocabulary table that layers may share."""


def parameter_name(layer_index: int, spec: ParameterSpec) -> str:
    """Name of a parameter in the whole model, whatever the plan."""
    return f"layers.{layer_index}.{spec.name}"


def initial_value(spec: ParameterSpec, name: str, seed: int) -> Tensor:
    """The whole initial tensor in float32 on the CPU."""
    if spec.initial == "ones":
        return torch.ones(spec.shape)
    if spec.initial == "zeros":
        return torch.zeros(spec.shape)
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    value = torch.empty(spec.shape)
    if spec.initial == "fan_in":
        bound = spec.shape[-1] ** -0.5
        return value.uniform_(-bound, bound, generator=generator)
    return value.normal_(std=INITIAL_STD, generator=generator)


class SeededWeights:
    """Random initial weights; see :class:`weight_source.WeightSource`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def read_range(self, index: int, spec: ParameterSpec, ranges: Ranges) -> Tensor:
        """Part of a parameter; see :class:`weight_source.WeightSource`."""
        value = initial_value(spec, parameter_name(index, spec), self.seed)
        if ranges == full_ranges(spec):
            return value
        return value[tuple(slice(start, stop) for start, stop in ranges)].clone()


class InitialWeights:
    """Initial weights of a run: a checkpoint's, the rest by seed.

    Adapters are always seeded.

    Args:
        checkpoint: its weights, None for none.
    """

    def __init__(self, checkpoint: WeightSource | None, seed: int) -> None:
        self._seeded = SeededWeights(seed)
        self._source = checkpoint or self._seeded

    def read_range(self, index: int, spec: ParameterSpec, ranges: Ranges) -> Tensor:
        """Part of a parameter; see :class:`weight_source.WeightSource`."""
        source = self._seeded if is_adapter(spec) else self._source
        return source.read_range(index, spec, ranges)


def fill_layer(
    module: LayerModule,
    model: ModelSpec,
    layer_index: int,
    layer: Layer,
    tp: TensorParallel,
    experts: ExpertRanks,
    seq_len: int,
    weight_source: WeightSource,
    device: torch.device,
    training: LayerTraining = FULLY_TRAINED,
    frozen_dtype: torch.dtype = torch.float32,
) -> None:
    """Fill a layer module with this rank's part of the initial values.

    ``layer_index`` numbers the layer in the whole ``model``, where tied weights are the
    embedding's. ``seq_len``: length of an open position table. ``training``: the trained part; the
    rest is frozen in ``frozen_dtype``.
    """
    if training.adapters is not None:
        module.adapter_scale = training.adapters.scale
    for spec in parameters_with_adapters(layer, seq_len, training):
        source = tied_source(model, layer_index, spec)
        ranges = expert_ranges(spec, experts) if spec.expert else local_ranges(spec, tp)
        value = weight_source.read_range(*source, ranges)
        if spec.expert:  # experts and outputs are one dimension, which is sharded by rows
            value = value.flatten(0, 1)
        holder, kind = module.holder(spec.name)
        trained = training.trains_parameter(spec)
        value = value.to(device, torch.float32 if trained else frozen_dtype)
        holder.register_parameter(kind, nn.Parameter(value, requires_grad=trained))


def local_ranges(spec: ParameterSpec, tp: TensorParallel) -> Ranges:
    """A tensor-parallel rank's part of a whole parameter."""
    ranges = list(full_ranges(spec))
    if spec.split_dim is not None and tp.size > 1:
        ranges[spec.split_dim] = split_range(spec.shape[spec.split_dim], tp.size, tp.rank)
    return tuple(ranges)


def expert_ranges(spec: ParameterSpec, ranks: ExpertRanks) -> Ranges:
    """A rank's part of all experts' parameters: its experts, its shards."""
    ranges = list(full_ranges(spec))
    ranges[0] = split_range(spec.shape[0], ranks.ep, ranks.ep_rank)
    if spec.split_dim is not None:
        width = spec.shape[spec.split_dim]
        ranges[spec.split_dim] = split_range(width, ranks.etp, ranks.etp_rank)
    return tuple(ranges)


def tied_source(
    model: ModelSpec, layer_index: int, spec: ParameterSpec
) -> tuple[int, ParameterSpec]:
    """Layer and spec of a parameter's value, following ties."""
    if spec.name == TABLE:
        return table_blocks(model).get(layer_index, layer_index), spec
    if spec.name not in TABLES:
        return layer_index, spec
    tables = shared_tables(model)
    if layer_index not in tables:
        return layer_index, spec
    return tables[0], ParameterSpec(name=TOKEN_WEIGHT, shape=spec.shape, split_dim=0)
