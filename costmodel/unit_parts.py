"""The parts of a unit: parameters that shard over the same ranks.

A unit's dense parameters shard over the ranks that hold the same slice of them, its experts
over the ranks that hold the same experts, which are others and mostly fewer. Each part has its
own gathers, reductions and sums. Dense parameters are cut along dimension 0; experts along
dimension 1, since the ranks of an expert group have cut dimension 0 already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ..spec.choices import Optimizer
from ..spec.formats import Dtype
from ..spec.groups import (
    RankGroup,
    expert_replica_group,
    expert_shard_group,
    replica_group,
    shard_group,
)
from ..spec.model import BlockLayer, EmbeddingLayer, HeadLayer, Layer, MultiTokenLayer
from ..spec.parameters import ParameterSpec, layer_parameters
from ..spec.stack import StackSpec
from ..spec.strategy import LayerStrategy
from ..spec.training import FULLY_TRAINED, NOT_ADAPTED, LayerTraining, adapter_specs
from ..spec.workload import DtypeRecord
from .heads import local_vocab
from .optimizers import Tensor

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


@dataclass(frozen=True, slots=True)
class Part:
    """Parameters that shard over the same ranks: elements on one rank, in all and one by one.

    ``group`` are the ranks that shard the optimizer's states, ``replicas`` those that hold equal
    shards; ``parameters``, ``secondary`` and ``gradients`` are the degrees of the other states.
    ``locals``: whole parameters; ``shards``: one padded shard of each; ``partials``: shards of
    those whose gradients are still parts of a sum over the tensor-parallel ranks. ``split`` are
    the ranks that split tensors. Frozen parameters are parts of their own (``trained`` false).
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
    tensors: tuple[Tensor, ...]
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
    """A parameter of a layer with its shape on the fullest rank."""

    spec: ParameterSpec
    shape: tuple[int, ...]
    layer: Layer
    trained: bool


def unit_parts(shape: UnitShape) -> tuple[Part, ...]:
    """The parts of a unit that have parameters: dense ones first, then experts, then frozen."""
    strategy, ranks = shape.strategy, shape.stage_ranks
    dense_groups = (shard_group(strategy), replica_group(strategy, ranks))
    expert_groups = (expert_shard_group(strategy, ranks), expert_replica_group(strategy, ranks))
    shard = strategy.shard
    degrees = (shard.parameters, shard.secondary_parameters, shard.gradients)
    locals_ = local_specs(shape)
    parts = []
    for trained in (True, False):
        mine = [each for each in locals_ if each.trained == trained]
        dense = [each for each in mine if not each.spec.expert]
        experts = [each for each in mine if each.spec.expert]
        if dense:
            parts.append(_part(dense, dense_groups, shape, degrees, dim=0))
        if experts:
            nested = _expert_degrees(strategy, ranks)
            parts.append(_part(experts, expert_groups, shape, nested, dim=1))
    return tuple(parts)


def _expert_degrees(strategy: LayerStrategy, ranks: int) -> tuple[int, int, int]:
    """Degrees of experts' parameters, secondary copy (1: none that is wider), gradients."""
    shard = strategy.shard
    first, second, gradients = (
        strategy.expert_degree(degree, ranks)
        for degree in (shard.parameters, shard.secondary_parameters, shard.gradients)
    )
    return first, second if second < first else 1, gradients


def local_specs(shape: UnitShape) -> list[_Local]:
    """The unit's parameters with their shapes on the fullest rank, adapters with their weight."""
    found: list[_Local] = []
    tied = len(shape.layers) > 1
    for number, layer in enumerate(shape.layers):
        training = shape.training(number)
        for spec in layer_parameters(layer, shape.seq_len):
            if number and tied and spec.name in SHARED_TABLES:
                continue
            found.append(_Local(spec, _padded(layer, spec, shape), layer, training.weights))
            if training.adapters is not None:
                found += [
                    _Local(extra, extra.local_shape(shape.strategy.weight_split), layer, True)
                    for extra in adapter_specs(spec, training.adapters)
                ]
    return found


def _padded(layer: Layer, spec: ParameterSpec, shape: UnitShape) -> tuple[int, ...]:
    """The local shape; vocabulary rows include the stack's padding."""
    if spec.expert:
        return spec.expert_shape(shape.strategy.ep, shape.strategy.etp)
    local = spec.local_shape(shape.strategy.weight_split)
    in_vocab = isinstance(layer, (EmbeddingLayer, HeadLayer)) and spec.split_dim == 0
    if not in_vocab or not isinstance(layer, (EmbeddingLayer, HeadLayer)):
        return local
    rows = local_vocab(layer.vocab, shape.strategy.weight_split, shape.stack.vocab_multiple)
    return (rows, *local[1:])


def _part(
    members: list[_Local],
    groups: tuple[RankGroup, RankGroup],
    shape: UnitShape,
    degrees: tuple[int, int, int],
    dim: int,
) -> Part:
    strategy, (group, replicas) = shape.strategy, groups
    whole, shards, partials, vectors, narrow = [], [], [], 0, 0
    for spec, local, layer, _ in members:
        width = math.prod(local) // local[dim]
        shard = -(-local[dim] // group.size) * width
        whole.append(local[dim] * width)
        shards.append(shard)
        vectors += shard if len(local) == 1 + dim else 0
        narrow += local[dim] * width if _is_linear(spec, layer) else 0
        if _is_partial(spec, strategy):
            partials.append(shard)
    return Part(
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
        split=RankGroup(strategy.etp if dim else strategy.weight_split, 1),
        trained=members[0].trained,
        tensors=tuple(_tensor(each, n) for each, n in zip(members, shards, strict=True)),
        narrow=narrow,
    )


def _tensor(member: _Local, shard: int) -> Tensor:
    spec, local, layer, _ = member
    hidden = isinstance(layer, (BlockLayer, MultiTokenLayer)) and len(local) - spec.expert == 2
    table = isinstance(layer, EmbeddingLayer) and len(local) == 2
    return Tensor(local, spec.shape[-2:], shard, hidden and not _is_filter(spec), table)


def _is_filter(spec: ParameterSpec) -> bool:
    """Whether a matrix holds a filter a row, or logits: nothing that multiplies vectors."""
    return spec.name.split(".")[0] in ("conv", "relative", "cross_relative")


def _is_linear(spec: ParameterSpec, layer: Layer) -> bool:
    """Whether a parameter is the weight of a linear layer whose products may be narrow."""
    name, _, what = spec.name.rpartition(".")
    in_block = isinstance(layer, (BlockLayer, MultiTokenLayer)) and what == "weight"
    return in_block and len(spec.shape) - spec.expert == 2 and name not in NOT_ADAPTED


def _is_partial(spec: ParameterSpec, strategy: LayerStrategy) -> bool:
    """Whether tensor-parallel ranks still sum a gradient; experts have ranks of their own."""
    if strategy.weight_split == 1 or spec.expert:
        return False
    by_sequence = spec.partial_gradient == "sequence_parallel" and strategy.megatron_sp
    return spec.partial_gradient == "always" or by_sequence
