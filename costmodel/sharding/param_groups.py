"""Parameter groups of a unit: parameters sharded over the same ranks.

Dense parameters shard over the ranks with the same slice, experts over those, mostly fewer, with
the same experts, each with their own traffic. Dense parameters are cut along dimension 0; experts
along dimension 1, since expert parallelism cuts dimension 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ...spec.choices import Optimizer
from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.layer_parameters import ParameterSpec, layer_parameters
from ...spec.model.model_spec import BlockLayer, EmbeddingLayer, HeadLayer, Layer, MultiTokenLayer
from ...spec.parallel.rank_groups import (
    RankGroup,
    expert_replica_group,
    expert_shard_group,
    replica_group,
    shard_group,
)
from ...spec.strategy import LayerStrategy
from ...spec.workload.base_formats import QuantizedBase, scale_bytes
from ...spec.workload.number_formats import Dtype
from ...spec.workload.training import FULLY_TRAINED, NOT_ADAPTED, LayerTraining, adapter_specs
from ...spec.workload.workload import DtypeRecord
from ..layers.heads import local_vocab
from .optimizers import LocalParameter

SHARED_TABLES = ("tokens.weight", "projection.weight")
"""Weights shared by layers of one unit; the first layer counts them."""


@dataclass(frozen=True, slots=True)
class UnitShape:
    """Everything behind a unit's state.

    ``layers`` is one layer, or embeddings and a head that share a weight; ``trainings``: trained
    parts of each (empty: all). ``clips``: gradients are clipped to a norm.
    """

    layers: tuple[Layer, ...]
    strategy: LayerStrategy
    stage_ranks: int
    seq_len: int
    dtype: DtypeRecord
    stack: StackSpec
    optimizer: Optimizer = "adamw"
    trainings: tuple[LayerTraining, ...] = ()
    clips: bool = False

    def training(self, number: int) -> LayerTraining:
        """Training of the unit's layer ``number``."""
        return self.trainings[number] if self.trainings else FULLY_TRAINED

    @property
    def base_dtype(self) -> Dtype:
        """Storage format of frozen parameters that are not in 4 or 8 bits."""
        formats = (t.adapters.plain_base for t in self.trainings if t.adapters is not None)
        return next((name for name in formats if name is not None), self.dtype.param)

    def formats(self, trained: bool) -> DtypeRecord:
        """Formats of trained or of frozen parameters."""
        return self.dtype if trained else replace(self.dtype, master=self.base_dtype)


@dataclass(frozen=True, slots=True, eq=False)
class ParamGroup:
    """Parameters that shard over the same ranks, and their elements.

    Equal arguments give the same object, so that its work can be cached by it.

    Attributes:
        ranks: ranks that shard the optimizer's states.
        replicas: ranks with equal shards.
        whole: elements of all parameters on a rank; ``locals``: of each.
        shard: elements of a rank's padded shards; ``shards``: of each.
        vectors: elements of the shards of vectors.
        partials: shards whose gradients are partial sums over tensor-parallel ranks.
        split: ranks that split tensors.
        trained: False for frozen parameters, a group of their own.
        experts: True for experts, a group of their own.
        tensors: what an optimizer reads of each parameter.
        narrow: elements whose products may run in low precision.
        base: 4- or 8-bit format of frozen weights, a group of their own; ``scales``: bytes of its
            scales on a rank.
        parameters: sharding degree of parameters; ``secondary`` of their copy, ``gradients``
            likewise. Of experts it may be 1 where the unit is gathered for each use, or reduced
            each micro-batch: their pieces are whole.
    """

    ranks: RankGroup
    replicas: RankGroup
    whole: int
    shard: int
    vectors: int
    locals: tuple[int, ...]
    shards: tuple[int, ...]
    partials: tuple[int, ...]
    split: RankGroup
    trained: bool
    experts: bool
    tensors: tuple[LocalParameter, ...]
    narrow: int
    base: QuantizedBase | None = None
    scales: int = 0
    parameters: int = 1
    secondary: int = 1
    gradients: int = 1
    gathers_each_use: bool = False
    reduces_each_micro_batch: bool = False

    @property
    def nests_parameters(self) -> bool:
        """True if pieces of fewer ranks than the optimizer states' are gathered for each use."""
        return self.gathers_each_use and self.parameters < self.degree

    @property
    def nests_gradients(self) -> bool:
        """True if each micro-batch reduces over fewer ranks than the optimizer states'."""
        return self.reduces_each_micro_batch and self.gradients < self.degree

    @property
    def reduces_alone(self) -> bool:
        """True if a micro-batch's reduction needs no scatter."""
        return (self.gradients if self.nests_gradients else self.degree) == 1

    @property
    def gradient_shard(self) -> int:
        """Elements of a reduced gradient before the update."""
        return self.padded // self.gradients if self.nests_gradients else self.shard

    def inner(self, degree: int) -> RankGroup:
        """The innermost ``degree`` of the group's ranks."""
        return RankGroup(degree, self.ranks.stride)

    def outer(self, degree: int) -> RankGroup:
        """The ranks with the parts of one piece of ``degree``."""
        return RankGroup(self.degree // degree, self.ranks.stride * degree)

    @property
    def degree(self) -> int:
        """Sharding degree of a state."""
        return self.ranks.size

    @property
    def padded(self) -> int:
        """Elements of all shards together."""
        return self.shard * self.ranks.size

    @property
    def shared(self) -> bool:
        """True if other ranks hold the same parameters and gradients are summed."""
        return self.ranks.size * self.replicas.size > 1


class _LocalWeight(NamedTuple):
    """A parameter of a layer with its shape on the fullest rank.

    ``partial``: tensor-parallel ranks still sum its gradient. ``linear``: its products may be low
    precision. ``hidden`` and ``table`` are for the optimizer. ``base``: its 4- or 8-bit format.
    """

    spec: ParameterSpec
    shape: tuple[int, ...]
    trained: bool
    partial: bool
    linear: bool
    hidden: bool
    table: bool
    base: QuantizedBase | None


@dataclass(frozen=True, slots=True, eq=False)
class _GroupMembers:
    """A group's parameters, one object for all requests for them."""

    weights: tuple[_LocalWeight, ...]


class _WeightSplit(NamedTuple):
    """Settings that shape a parameter on a rank."""

    weights: int
    megatron_sp: bool
    ep: int
    etp: int
    vocab_multiple: int


def param_groups(shape: UnitShape) -> tuple[ParamGroup, ...]:
    """Non-empty groups of a unit: dense, then experts; trained, then frozen."""
    strategy, ranks = shape.strategy, shape.stage_ranks
    dense_groups = (shard_group(strategy), replica_group(strategy, ranks))
    expert_groups = (expert_shard_group(strategy, ranks), expert_replica_group(strategy, ranks))
    shard = strategy.shard
    degrees = (shard.parameters, shard.secondary_parameters, shard.gradients)
    uses = (shard.gathers_each_use, shard.reduces_each_micro_batch)
    split = _WeightSplit(
        strategy.weight_split,
        strategy.megatron_sp,
        strategy.ep,
        strategy.etp,
        shape.stack.vocab_multiple,
    )
    groups = []
    for dense, experts in _local_specs(shape.layers, shape.trainings, shape.seq_len, split):
        if dense.weights:
            tensor_group = RankGroup(strategy.weight_split, 1)
            groups.append(_param_group(dense, dense_groups, degrees, uses, tensor_group, 0))
        if experts.weights:
            nested, tensor_group = _expert_degrees(strategy, ranks), RankGroup(strategy.etp, 1)
            groups.append(_param_group(experts, expert_groups, nested, uses, tensor_group, 1))
    return tuple(groups)


def _expert_degrees(strategy: LayerStrategy, ranks: int) -> tuple[int, int, int]:
    """Degrees of experts' parameters, secondary copy (1: none wider), gradients."""
    shard = strategy.shard
    first, second, gradients = (
        strategy.expert_degree(degree, ranks)
        for degree in (shard.parameters, shard.secondary_parameters, shard.gradients)
    )
    return first, second if second < first else 1, gradients


@lru_cache(maxsize=4096)
def _local_specs(
    layers: tuple[Layer, ...],
    trainings: tuple[LayerTraining, ...],
    seq_len: int,
    split: _WeightSplit,
) -> tuple[tuple[_GroupMembers, _GroupMembers], ...]:
    """Parameters on the fullest rank: dense and experts, trained, frozen, then in 4 or 8 bits.

    Adapters stand with their weight.
    """
    local_weights: list[_LocalWeight] = []
    tied = len(layers) > 1
    for number, layer in enumerate(layers):
        training = trainings[number] if trainings else FULLY_TRAINED
        for spec in layer_parameters(layer, seq_len):
            if number and tied and spec.name in SHARED_TABLES:
                continue
            local_weights.append(_local(spec, _padded(layer, spec, split), layer, training, split))
            if training.adapters is not None:
                local_weights += [
                    _local(extra, extra.local_shape(split.weights), layer, FULLY_TRAINED, split)
                    for extra in adapter_specs(spec, training.adapters)
                ]

    def members(kind: tuple[bool, bool], expert: bool) -> _GroupMembers:
        weights = (w for w in local_weights if w.spec.expert == expert)
        return _GroupMembers(tuple(w for w in weights if (w.trained, w.base is not None) == kind))

    kinds = ((True, False), (False, False), (False, True))
    return tuple((members(kind, False), members(kind, True)) for kind in kinds)


def _local(
    spec: ParameterSpec,
    shape: tuple[int, ...],
    layer: Layer,
    training: LayerTraining,
    split: _WeightSplit,
) -> _LocalWeight:
    matrix = len(shape) - spec.expert == 2
    hidden = isinstance(layer, (BlockLayer, MultiTokenLayer)) and matrix and not _is_filter(spec)
    adapters = training.adapters
    return _LocalWeight(
        spec=spec,
        shape=shape,
        trained=training.weights,
        partial=_is_partial(spec, split),
        linear=_is_linear(spec, layer),
        hidden=hidden,
        table=isinstance(layer, EmbeddingLayer) and len(shape) == 2,
        base=adapters.quantized_base if adapters and _is_linear(spec, layer) else None,
    )


def _padded(layer: Layer, spec: ParameterSpec, split: _WeightSplit) -> tuple[int, ...]:
    """The local shape; vocabulary rows include the stack's padding."""
    if spec.expert:
        return spec.expert_shape(split.ep, split.etp)
    local = spec.local_shape(split.weights)
    in_vocab = isinstance(layer, (EmbeddingLayer, HeadLayer)) and spec.split_dim == 0
    if not in_vocab or not isinstance(layer, (EmbeddingLayer, HeadLayer)):
        return local
    rows = local_vocab(layer.vocab, split.weights, split.vocab_multiple)
    return (rows, *local[1:])


@lru_cache(maxsize=4096)
def _param_group(
    members: _GroupMembers,
    groups: tuple[RankGroup, RankGroup],
    degrees: tuple[int, int, int],
    uses: tuple[bool, bool],
    tensor_group: RankGroup,
    dim: int,
) -> ParamGroup:
    (group, replicas), first = groups, members.weights[0]
    elements_each, shards, partials, tensors, vectors, narrow = [], [], [], [], 0, 0
    for member in members.weights:
        local = member.shape
        elements = math.prod(local)
        shard = -(-local[dim] // group.size) * (elements // local[dim])
        elements_each.append(elements)
        shards.append(shard)
        vectors += shard if len(local) == 1 + dim else 0
        narrow += elements if member.linear else 0
        if member.partial:
            partials.append(shard)
        sizes = member.spec.shape[-2:]
        tensors.append(LocalParameter(local, sizes, shard, member.hidden, member.table))
    return ParamGroup(
        ranks=group,
        replicas=replicas,
        whole=sum(elements_each),
        shard=sum(shards),
        vectors=vectors,
        locals=tuple(elements_each),
        shards=tuple(shards),
        partials=tuple(partials),
        parameters=degrees[0],
        secondary=degrees[1],
        gradients=degrees[2],
        gathers_each_use=uses[0],
        reduces_each_micro_batch=uses[1],
        split=tensor_group,
        trained=first.trained,
        experts=first.spec.expert,
        tensors=tuple(tensors),
        narrow=narrow,
        base=first.base,
        scales=sum(_scales(member) for member in members.weights),
    )


def _scales(weight: _LocalWeight) -> int:
    """Bytes of the scales of a weight in 4 or 8 bits; of experts, each has its own."""
    if weight.base is None:
        return 0
    *matrices, rows, columns = weight.shape
    return math.prod(matrices) * scale_bytes(rows, columns, weight.base)


def _is_filter(spec: ParameterSpec) -> bool:
    return spec.name.split(".")[0] in ("conv", "relative", "cross_relative")


def _is_linear(spec: ParameterSpec, layer: Layer) -> bool:
    name, _, suffix = spec.name.rpartition(".")
    in_block = isinstance(layer, (BlockLayer, MultiTokenLayer)) and suffix == "weight"
    return in_block and len(spec.shape) - spec.expert == 2 and name not in NOT_ADAPTED


def _is_partial(spec: ParameterSpec, split: _WeightSplit) -> bool:
    if split.weights == 1 or spec.expert:
        return False
    by_sequence = spec.partial_gradient == "sequence_parallel" and split.megatron_sp
    return spec.partial_gradient == "always" or by_sequence
