"""The parts of a unit: parameters that shard over the same ranks.

A unit's dense parameters shard over the ranks that hold the same slice of them, its experts
over the ranks that hold the same experts, which are others and mostly fewer. Each part has its
own gathers, reductions and sums. Dense parameters are cut along dimension 0; experts along
dimension 1, since the ranks of an expert group have cut dimension 0 already.
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
from ...spec.workload.number_formats import Dtype
from ...spec.workload.training import FULLY_TRAINED, NOT_ADAPTED, LayerTraining, adapter_specs
from ...spec.workload.workload import DtypeRecord
from ..layers.heads import local_vocab
from .optimizers import LocalParameter

SHARED_TABLES = ("tokens.weight", "projection.weight")
"""Names of what layers of one unit hold together: the first of them counts it."""


@dataclass(frozen=True, slots=True)
class UnitShape:
    """What a unit's state depends on.

    ``layers`` is one layer, or embeddings and a head that share a weight; ``trainings`` says
    what of each is trained (empty: all).
    """

    layers: tuple[Layer, ...]
    strategy: LayerStrategy
    stage_ranks: int
    seq_len: int
    dtype: DtypeRecord
    stack: StackSpec
    optimizer: Optimizer = "adamw"
    trainings: tuple[LayerTraining, ...] = ()

    def training(self, number: int) -> LayerTraining:
        """What training does to the unit's layer ``number``."""
        return self.trainings[number] if self.trainings else FULLY_TRAINED

    @property
    def base_dtype(self) -> Dtype:
        """The format that frozen parameters are kept in."""
        found = (t.adapters.base_dtype for t in self.trainings if t.adapters is not None)
        return next((dtype for dtype in found if dtype is not None), self.dtype.param)

    def formats(self, trained: bool) -> DtypeRecord:
        """The formats of trained parameters, or of frozen ones, which are kept in their own."""
        return self.dtype if trained else replace(self.dtype, master=self.base_dtype)


@dataclass(frozen=True, slots=True, eq=False)
class ParamGroup:
    """Parameters that shard over the same ranks: elements on one rank, in all and one by one.

    Equal questions give the same object, so that what a part moves can be kept by it.

    ``group`` are the ranks that shard the optimizer's states, ``replicas`` those that hold equal
    shards; ``parameters``, ``secondary`` and ``gradients`` are the degrees of the other states.
    ``locals``: whole parameters; ``shards``: one padded shard of each; ``partials``: shards of
    those whose gradients are still parts of a sum over the tensor-parallel ranks. ``split`` are
    the ranks that split tensors. Frozen parameters are parts of their own (``trained`` false), and
    so are ``experts``.
    ``tensors``: what an optimizer knows of each; ``narrow``: elements whose products may run in
    a narrow format.
    """

    group: RankGroup
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
    parameters: int = 1
    secondary: int = 1
    gradients: int = 1

    @property
    def nests_parameters(self) -> bool:
        """Whether parameters are cut over some of the ranks that cut the optimizer's states."""
        return 1 < self.parameters < self.degree

    @property
    def nests_gradients(self) -> bool:
        """Whether gradients are cut over some of the ranks that cut the optimizer's states."""
        return 1 < self.gradients < self.degree

    @property
    def gradient_shard(self) -> int:
        """Elements of a reduced gradient before the update."""
        return self.padded // self.gradients if self.nests_gradients else self.shard

    def inner(self, degree: int) -> RankGroup:
        """The innermost ``degree`` ranks of the group."""
        return RankGroup(degree, self.group.stride)

    def outer(self, degree: int) -> RankGroup:
        """The ranks of the group that hold the parts of one piece of ``degree``."""
        return RankGroup(self.degree // degree, self.group.stride * degree)

    @property
    def degree(self) -> int:
        """Ranks that a state is cut over."""
        return self.group.size

    @property
    def padded(self) -> int:
        """Elements of all shards together."""
        return self.shard * self.group.size

    @property
    def shared(self) -> bool:
        """Whether other ranks hold the same parameters, so that gradients are summed."""
        return self.group.size * self.replicas.size > 1


class _Local(NamedTuple):
    """A parameter of a layer with its shape on the fullest rank.

    ``partial``: tensor-parallel ranks still sum its gradient. ``linear``: the weight of a linear
    layer whose products may be narrow. ``hidden`` and ``table`` are what an optimizer asks.
    """

    spec: ParameterSpec
    shape: tuple[int, ...]
    trained: bool
    partial: bool
    linear: bool
    hidden: bool
    table: bool


@dataclass(frozen=True, slots=True, eq=False)
class _GroupMembers:
    """The parameters of a part: one object for all questions about the same ones."""

    each: tuple[_Local, ...]


class _WeightSplit(NamedTuple):
    """What of a strategy and a stack a parameter's shape on a rank depends on."""

    weights: int
    megatron_sp: bool
    ep: int
    etp: int
    vocab_multiple: int


def param_groups(shape: UnitShape) -> tuple[ParamGroup, ...]:
    """The parts of a unit that have parameters: dense ones first, then experts, then frozen."""
    strategy, ranks = shape.strategy, shape.stage_ranks
    dense_groups = (shard_group(strategy), replica_group(strategy, ranks))
    expert_groups = (expert_shard_group(strategy, ranks), expert_replica_group(strategy, ranks))
    shard = strategy.shard
    degrees = (shard.parameters, shard.secondary_parameters, shard.gradients)
    split = _WeightSplit(
        strategy.weight_split,
        strategy.megatron_sp,
        strategy.ep,
        strategy.etp,
        shape.stack.vocab_multiple,
    )
    parts = []
    for dense, experts in _local_specs(shape.layers, shape.trainings, shape.seq_len, split):
        if dense.each:
            tensor_group = RankGroup(strategy.weight_split, 1)
            parts.append(_param_group(dense, dense_groups, degrees, tensor_group, 0))
        if experts.each:
            nested, tensor_group = _expert_degrees(strategy, ranks), RankGroup(strategy.etp, 1)
            parts.append(_param_group(experts, expert_groups, nested, tensor_group, 1))
    return tuple(parts)


def _expert_degrees(strategy: LayerStrategy, ranks: int) -> tuple[int, int, int]:
    """Degrees of experts' parameters, secondary copy (1: none that is wider), gradients."""
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
    """A unit's parameters on the fullest rank: trained, then frozen; of each dense, then experts.

    Adapters stand with their weight.
    """
    found: list[_Local] = []
    tied = len(layers) > 1
    for number, layer in enumerate(layers):
        training = trainings[number] if trainings else FULLY_TRAINED
        for spec in layer_parameters(layer, seq_len):
            if number and tied and spec.name in SHARED_TABLES:
                continue
            found.append(_local(spec, _padded(layer, spec, split), layer, training.weights, split))
            if training.adapters is not None:
                found += [
                    _local(extra, extra.local_shape(split.weights), layer, True, split)
                    for extra in adapter_specs(spec, training.adapters)
                ]

    def members(trained: bool, expert: bool) -> _GroupMembers:
        like = (each for each in found if each.trained == trained and each.spec.expert == expert)
        return _GroupMembers(tuple(like))

    return tuple((members(trained, False), members(trained, True)) for trained in (True, False))


def _local(
    spec: ParameterSpec, shape: tuple[int, ...], layer: Layer, trained: bool, split: _WeightSplit
) -> _Local:
    matrix = len(shape) - spec.expert == 2
    hidden = isinstance(layer, (BlockLayer, MultiTokenLayer)) and matrix and not _is_filter(spec)
    return _Local(
        spec=spec,
        shape=shape,
        trained=trained,
        partial=_is_partial(spec, split),
        linear=_is_linear(spec, layer),
        hidden=hidden,
        table=isinstance(layer, EmbeddingLayer) and len(shape) == 2,
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
    tensor_group: RankGroup,
    dim: int,
) -> ParamGroup:
    (group, replicas), first = groups, members.each[0]
    whole, shards, partials, tensors, vectors, narrow = [], [], [], [], 0, 0
    for member in members.each:
        local = member.shape
        elements = math.prod(local)
        shard = -(-local[dim] // group.size) * (elements // local[dim])
        whole.append(elements)
        shards.append(shard)
        vectors += shard if len(local) == 1 + dim else 0
        narrow += elements if member.linear else 0
        if member.partial:
            partials.append(shard)
        sizes = member.spec.shape[-2:]
        tensors.append(LocalParameter(local, sizes, shard, member.hidden, member.table))
    return ParamGroup(
        group=group,
        replicas=replicas,
        whole=sum(whole),
        shard=sum(shards),
        vectors=vectors,
        locals=tuple(whole),
        shards=tuple(shards),
        partials=tuple(partials),
        parameters=degrees[0],
        secondary=degrees[1],
        gradients=degrees[2],
        split=tensor_group,
        trained=first.trained,
        experts=first.spec.expert,
        tensors=tuple(tensors),
        narrow=narrow,
    )


def _is_filter(spec: ParameterSpec) -> bool:
    """Whether a matrix holds a filter a row, or logits: nothing that multiplies vectors."""
    return spec.name.split(".")[0] in ("conv", "relative", "cross_relative")


def _is_linear(spec: ParameterSpec, layer: Layer) -> bool:
    """Whether a parameter is the weight of a linear layer whose products may be narrow."""
    name, _, what = spec.name.rpartition(".")
    in_block = isinstance(layer, (BlockLayer, MultiTokenLayer)) and what == "weight"
    return in_block and len(spec.shape) - spec.expert == 2 and name not in NOT_ADAPTED


def _is_partial(spec: ParameterSpec, split: _WeightSplit) -> bool:
    """Whether tensor-parallel ranks still sum a gradient; experts have ranks of their own."""
    if split.weights == 1 or spec.expert:
        return False
    by_sequence = spec.partial_gradient == "sequence_parallel" and split.megatron_sp
    return spec.partial_gradient == "always" or by_sequence
