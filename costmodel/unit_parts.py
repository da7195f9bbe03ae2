"""The parts of a unit: parameters that shard over the same ranks.

A unit's dense parameters shard over the ranks that hold the same slice of them, its experts
over the ranks that hold the same experts, which are others and mostly fewer. Each part has its
own gathers, reductions and sums. Dense parameters are cut along dimension 0; experts along
dimension 1, since the ranks of an expert group have cut dimension 0 already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..spec.groups import (
    RankGroup,
    expert_replica_group,
    expert_shard_group,
    replica_group,
    shard_group,
)
from ..spec.model import EmbeddingLayer, HeadLayer, Layer
from ..spec.parameters import ParameterSpec, layer_parameters
from ..spec.stack import StackSpec
from ..spec.strategy import LayerStrategy
from ..spec.workload import DtypeRecord
from .heads import local_vocab


@dataclass(frozen=True, slots=True)
class UnitShape:
    """What a unit's state depends on.

    ``layers`` is one layer, or an embedding and a head that share a weight.
    """

    layers: tuple[Layer, ...]
    strategy: LayerStrategy
    stage_ranks: int
    seq_len: int
    dtype: DtypeRecord
    stack: StackSpec


@dataclass(frozen=True, slots=True)
class Part:
    """Parameters that shard over the same ranks: elements on one rank, in all and one by one.

    ``group`` are the ranks that shard the optimizer's states, ``replicas`` those that hold equal
    shards; ``parameters``, ``secondary`` and ``gradients`` are the degrees of the other states.
    ``locals``: whole parameters; ``shards``: one padded shard of each; ``partials``: shards of
    those whose gradients are still parts of a sum over the tensor-parallel ranks.
    """

    group: RankGroup
    replicas: RankGroup
    whole: int
    shard: int
    vectors: int
    locals: tuple[int, ...]
    shards: tuple[int, ...]
    partials: tuple[int, ...]
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


def unit_parts(shape: UnitShape) -> tuple[Part, ...]:
    """The parts of a unit that have parameters: dense ones first, then experts."""
    strategy, ranks = shape.strategy, shape.stage_ranks
    specs = local_specs(shape)
    dense = [(spec, local) for spec, local in specs if not spec.expert]
    experts = [(spec, local) for spec, local in specs if spec.expert]
    parts = []
    if dense:
        groups = (shard_group(strategy), replica_group(strategy, ranks))
        shard = strategy.shard
        degrees = (shard.parameters, shard.secondary_parameters, shard.gradients)
        parts.append(_part(dense, groups, strategy, degrees, dim=0))
    if experts:
        groups = (
            expert_shard_group(strategy, ranks),
            expert_replica_group(strategy, ranks),
        )
        parts.append(_part(experts, groups, strategy, _expert_degrees(strategy, ranks), dim=1))
    return tuple(parts)


def _expert_degrees(strategy: LayerStrategy, ranks: int) -> tuple[int, int, int]:
    """Degrees of experts' parameters, secondary copy (1: none that is wider), gradients."""
    shard = strategy.shard
    first, second, gradients = (
        strategy.expert_degree(degree, ranks)
        for degree in (shard.parameters, shard.secondary_parameters, shard.gradients)
    )
    return first, second if second < first else 1, gradients


def local_specs(shape: UnitShape) -> list[tuple[ParameterSpec, tuple[int, ...]]]:
    """The unit's parameters with their shapes on the fullest rank."""
    found: list[tuple[ParameterSpec, tuple[int, ...]]] = []
    tied = len(shape.layers) > 1
    for layer in shape.layers:
        for spec in layer_parameters(layer, shape.seq_len):
            if tied and isinstance(layer, HeadLayer) and spec.name == "projection.weight":
                continue
            found.append((spec, _padded(layer, spec, shape)))
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
    specs: list[tuple[ParameterSpec, tuple[int, ...]]],
    groups: tuple[RankGroup, RankGroup],
    strategy: LayerStrategy,
    degrees: tuple[int, int, int],
    dim: int,
) -> Part:
    group, replicas = groups
    whole, shards, partials, vectors = [], [], [], 0
    for spec, local in specs:
        width = math.prod(local) // local[dim]
        shard = -(-local[dim] // group.size) * width
        whole.append(local[dim] * width)
        shards.append(shard)
        vectors += shard if len(local) == 1 + dim else 0
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
    )


def _is_partial(spec: ParameterSpec, strategy: LayerStrategy) -> bool:
    """Whether tensor-parallel ranks still sum a gradient; experts have ranks of their own."""
    if strategy.weight_split == 1 or spec.expert:
        return False
    by_sequence = spec.partial_gradient == "sequence_parallel" and strategy.megatron_sp
    return spec.partial_gradient == "always" or by_sequence
