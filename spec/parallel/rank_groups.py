"""Rank groups of a stage, each ``size`` ranks ``stride`` apart.

A stage of W ranks orders them (data parallel outer, context parallel, tensor parallel inner).
With tensor parallel degree t, context parallel degree c and optimizer sharding degree d, rank r
is in
- its tensor group: t consecutive ranks;
- its context group: c ranks, t apart;
- its shard group: d ranks, t apart (the innermost ranks that hold the same weights; 1 apart
  with ulysses, where all ranks do);
- its replica group: W / (t·d) ranks, t·d apart;
- where parameters or gradients shard over p < d ranks: the p innermost of the shard group, and
  the d / p ranks, t·p apart, that hold the parts of one such shard;
- for experts: etp consecutive ranks split an expert, ep ranks etp apart hold different ones,
  and the ranks ep·etp apart hold the same.

Where neighboring layers have different tensor-parallel degrees a < b, the batch is gathered or
split over b / a ranks, a apart; if one of them splits the sequence, ranks exchange tokens in
groups of the least common multiple of both widths. Executor and cost model both read these
definitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import groupby, pairwise
from typing import NamedTuple

from ..strategy import LayerStrategy


class RankGroup(NamedTuple):
    """``size`` ranks, ``stride`` apart, inside a stage."""

    size: int
    stride: int

    def members(self, rank: int) -> tuple[int, ...]:
        """The stage-local ranks of the group that holds stage-local ``rank``, ascending."""
        first = rank - self.position(rank) * self.stride
        return tuple(first + i * self.stride for i in range(self.size))

    def position(self, rank: int) -> int:
        """Index of ``rank`` in its group."""
        return rank // self.stride % self.size

    @property
    def span(self) -> int:
        """Ranks from the first member to the last, both counted."""
        return (self.size - 1) * self.stride + 1


def tensor_group(strategy: LayerStrategy) -> RankGroup:
    """Ranks over which the layer's weights are split."""
    return RankGroup(strategy.tp, 1)


def shard_group(strategy: LayerStrategy) -> RankGroup:
    """Ranks over which the layer's optimizer state is split."""
    return RankGroup(strategy.shard.optimizer, strategy.weight_split)


def replica_group(strategy: LayerStrategy, stage_ranks: int) -> RankGroup:
    """Ranks that hold equal shards and sum their gradients."""
    inner = strategy.weight_split * strategy.shard.optimizer
    return RankGroup(stage_ranks // inner, inner)


def inner_group(strategy: LayerStrategy, degree: int) -> RankGroup:
    """The innermost ``degree`` ranks with the same weights, which split a state."""
    return RankGroup(degree, strategy.weight_split)


def secondary_replicas(strategy: LayerStrategy, stage_ranks: int) -> RankGroup:
    """Ranks with equal shards of the second copy; they never communicate."""
    inner = strategy.weight_split * strategy.shard.secondary_parameters
    return RankGroup(stage_ranks // inner, inner)


def outer_group(strategy: LayerStrategy, inner: int, degree: int) -> RankGroup:
    """Ranks with the ``degree / inner`` parts of one ``inner`` shard."""
    return RankGroup(degree // inner, strategy.weight_split * inner)


def state_groups(strategy: LayerStrategy, stage_ranks: int) -> set[RankGroup]:
    """Groups over which the layer's states are gathered, scattered and summed."""
    shard = strategy.shard
    groups = {shard_group(strategy), replica_group(strategy, stage_ranks)}
    for degree in {shard.parameters, shard.gradients} - {1, shard.optimizer}:
        groups.add(inner_group(strategy, degree))
        groups.add(outer_group(strategy, degree, shard.optimizer))
    if shard.secondary_parameters > 1:
        groups.add(inner_group(strategy, shard.secondary_parameters))
    return groups


def context_group(strategy: LayerStrategy) -> RankGroup:
    """Ranks of a ring, which split the sequence."""
    return RankGroup(strategy.cp, strategy.tp)


def expert_tensor_group(strategy: LayerStrategy) -> RankGroup:
    """Ranks over which one expert's weights are split."""
    return RankGroup(strategy.etp, 1)


def expert_group(strategy: LayerStrategy) -> RankGroup:
    """Ranks that hold different experts and exchange tokens."""
    return RankGroup(strategy.ep, strategy.etp)


def expert_shard_group(strategy: LayerStrategy, stage_ranks: int) -> RankGroup:
    """Ranks over which the optimizer state of a rank's experts is split."""
    degree = strategy.expert_degree(strategy.shard.optimizer, stage_ranks)
    return RankGroup(degree, strategy.ep * strategy.etp)


def expert_replica_group(strategy: LayerStrategy, stage_ranks: int) -> RankGroup:
    """Ranks with equal expert shards, which sum their gradients."""
    inner = strategy.ep * strategy.etp
    inner *= strategy.expert_degree(strategy.shard.optimizer, stage_ranks)
    return RankGroup(stage_ranks // inner, inner)


def expert_state_groups(strategy: LayerStrategy, stage_ranks: int) -> set[RankGroup]:
    """As :func:`state_groups`, for the states of experts."""
    group = expert_shard_group(strategy, stage_ranks)
    groups = {group, expert_replica_group(strategy, stage_ranks)}
    shard = strategy.shard
    for dense_degree in (shard.parameters, shard.gradients):
        degree = strategy.expert_degree(dense_degree, stage_ranks)
        if 1 < degree < group.size:
            groups.add(RankGroup(degree, group.stride))
            groups.add(RankGroup(group.size // degree, group.stride * degree))
    if (secondary := expert_secondary(strategy, stage_ranks)) is not None:
        groups.add(secondary[0])
    return groups


def expert_secondary(
    strategy: LayerStrategy, stage_ranks: int
) -> tuple[RankGroup, RankGroup] | None:
    """Shard and replica groups of a second copy of experts.

    None where the copy would be split no narrower than the first, or not at all.
    """
    shard, stride = strategy.shard, strategy.ep * strategy.etp
    degree = strategy.expert_degree(shard.secondary_parameters, stage_ranks)
    if not 1 < degree < strategy.expert_degree(shard.parameters, stage_ranks):
        return None
    inner = stride * degree
    return RankGroup(degree, stride), RankGroup(stage_ranks // inner, inner)


def batch_group(tp_low: int, tp_high: int) -> RankGroup:
    """Ranks whose batch parts join when tp grows from low to high."""
    return RankGroup(tp_high // tp_low, tp_low)


ReducedRanks = Callable[[LayerStrategy], int]
"""Ranks of a stage that sum the gradients of a layer of a strategy, where it is not all."""


def expert_groups(
    strategies: Iterable[LayerStrategy], stage_ranks: int, reduced: ReducedRanks | None = None
) -> list[RankGroup]:
    """Groups of several ranks for states of experts."""
    groups: set[RankGroup] = set()
    for strategy in _runs(strategies):
        ranks = stage_ranks if reduced is None else reduced(strategy)
        groups |= expert_state_groups(strategy, ranks)
    return sorted(group for group in groups if group.size > 1)


def expert_routes(strategies: Iterable[LayerStrategy]) -> list[RankGroup]:
    """Groups of several ranks inside which rows go to experts."""
    groups: set[RankGroup] = set()
    for strategy in _runs(strategies):
        groups |= {expert_group(strategy), expert_tensor_group(strategy)}
    return sorted(group for group in groups if group.size > 1)


def stage_groups(
    strategies: list[LayerStrategy],
    stage_ranks: int,
    with_experts: Iterable[LayerStrategy] = (),
    reduced: ReducedRanks | None = None,
) -> list[RankGroup]:
    """Groups of several ranks that a stage with these layers needs, sorted.

    Args:
        strategies: of the layers in order, with the layer before the stage first if any.
        stage_ranks: ranks of the stage.
        with_experts: of the layers that have experts.
        reduced: ranks that sum gradients; None: all.
    """
    strategies, with_experts = _runs(strategies), _runs(with_experts)
    groups: set[RankGroup] = set()
    for strategy in strategies:
        groups |= {tensor_group(strategy), context_group(strategy)}
        ranks = stage_ranks if reduced is None else reduced(strategy)
        groups |= state_groups(strategy, ranks)
    for strategy in with_experts:
        groups |= {expert_group(strategy), expert_tensor_group(strategy)}
        ranks = stage_ranks if reduced is None else reduced(strategy)
        groups |= expert_state_groups(strategy, ranks)
    for before, after in pairwise(strategies):
        groups |= set(redistribute_groups(before, after))
    return sorted(group for group in groups if group.size > 1)


def _runs(strategies: Iterable[LayerStrategy]) -> list[LayerStrategy]:
    """One of each run of the same object.

    Most neighboring layers share their strategy.
    """
    return [next(run) for _, run in groupby(strategies, key=id)]


def redistribute_groups(before: LayerStrategy, after: LayerStrategy) -> list[RankGroup]:
    """Groups that redistribute activations from one layer's layout to the next.

    Gathers and splits inside a tensor group are not counted.
    """
    if (before.tp, before.cp) == (after.tp, after.cp):
        return []
    if exchanges_tokens(before, after):
        return [exchange_group(before, after)]
    return batch_redistribute_steps(before.tp, after.tp)


def exchanges_tokens(before: LayerStrategy, after: LayerStrategy) -> bool:
    """True if ranks exchange tokens between two layers, instead of gathering samples."""
    splits = any(s.cp > 1 or s.ulysses for s in (before, after))
    return splits and (before.tp, before.cp) != (after.tp, after.cp)


def exchange_group(before: LayerStrategy, after: LayerStrategy) -> RankGroup:
    """Ranks with the same samples on both sides of a redistribution."""
    return RankGroup(math.lcm(before.width, after.width), 1)


def batch_redistribute_steps(tp_from: int, tp_to: int) -> list[RankGroup]:
    """Batch gathers and splits from one tensor-parallel degree to another.

    One step if one degree divides the other; otherwise split down to their greatest common
    divisor first, then gather.
    """
    if tp_from == tp_to:
        return []
    low, high = sorted((tp_from, tp_to))
    if high % low == 0:
        return [batch_group(low, high)]
    common = math.gcd(tp_from, tp_to)
    return [batch_group(common, tp_from), batch_group(common, tp_to)]
