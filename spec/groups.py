"""Rank groups of a stage: every group that a plan needs is ``size`` ranks ``stride`` apart.

A stage of W ranks orders them (data parallel outer, context parallel, tensor parallel inner).
With tensor parallel degree t, context parallel degree c and optimizer sharding degree d, rank r
is in

- its tensor group: t consecutive ranks;
- its context group: c ranks, t apart;
- its shard group: d ranks, t apart (the innermost ranks that hold the same weights; 1 apart
  with ulysses, where all ranks do);
- its replica group: W / (t·d) ranks, t·d apart;
- for experts: etp consecutive ranks split an expert, ep ranks etp apart hold different ones,
  and the ranks ep·etp apart hold the same.

Where neighbouring layers have different tensor-parallel degrees a < b, the batch is gathered
or cut over b / a ranks, a apart. Executor and cost model read the same definitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from .strategy import LayerStrategy


class RankGroup(NamedTuple):
    """``size`` ranks, ``stride`` apart, inside a stage."""

    size: int
    stride: int

    def members(self, rank: int) -> tuple[int, ...]:
        """The stage-local ranks of the group that holds stage-local ``rank``, ascending."""
        first = rank - self.position(rank) * self.stride
        return tuple(first + i * self.stride for i in range(self.size))

    def position(self, rank: int) -> int:
        """The place of ``rank`` in its group."""
        return rank // self.stride % self.size

    @property
    def span(self) -> int:
        """Ranks from the first member to the last, both counted."""
        return (self.size - 1) * self.stride + 1


def tensor_group(strategy: LayerStrategy) -> RankGroup:
    """The ranks over which the layer's weights are split."""
    return RankGroup(strategy.tp, 1)


def shard_group(strategy: LayerStrategy) -> RankGroup:
    """The ranks over which the layer's optimizer state is split."""
    return RankGroup(strategy.shard.optimizer, strategy.weight_split)


def replica_group(strategy: LayerStrategy, stage_ranks: int) -> RankGroup:
    """The ranks that hold equal shards and sum their gradients."""
    inner = strategy.weight_split * strategy.shard.optimizer
    return RankGroup(stage_ranks // inner, inner)


def context_group(strategy: LayerStrategy) -> RankGroup:
    """The ranks of a ring, which split the sequence."""
    return RankGroup(strategy.cp, strategy.tp)


def expert_tensor_group(strategy: LayerStrategy) -> RankGroup:
    """The ranks over which one expert's weights are split."""
    return RankGroup(strategy.etp, 1)


def expert_group(strategy: LayerStrategy) -> RankGroup:
    """The ranks that hold different experts and exchange tokens."""
    return RankGroup(strategy.ep, strategy.etp)


def expert_shard_group(strategy: LayerStrategy, stage_ranks: int) -> RankGroup:
    """The ranks over which the optimizer state of a rank's experts is split."""
    degree = strategy.expert_degree(strategy.shard.optimizer, stage_ranks)
    return RankGroup(degree, strategy.ep * strategy.etp)


def expert_replica_group(strategy: LayerStrategy, stage_ranks: int) -> RankGroup:
    """The ranks that hold equal shards of the same experts and sum their gradients."""
    inner = strategy.ep * strategy.etp
    inner *= strategy.expert_degree(strategy.shard.optimizer, stage_ranks)
    return RankGroup(stage_ranks // inner, inner)


def batch_group(tp_low: int, tp_high: int) -> RankGroup:
    """The ranks whose batch parts join when tensor parallelism widens from low to high."""
    return RankGroup(tp_high // tp_low, tp_low)


def data_index(strategy: LayerStrategy, rank: int) -> int:
    """Which part of the micro-batch a stage-local rank works on."""
    return rank // (strategy.tp * strategy.cp)


def stage_groups(
    strategies: list[LayerStrategy],
    stage_ranks: int,
    with_experts: Iterable[LayerStrategy] = (),
) -> list[RankGroup]:
    """Every group of more than one rank that a stage with these layers needs, sorted.

    Args:
        strategies: of the layers in order, with the layer before the stage first if any.
        stage_ranks: ranks of the stage.
        with_experts: of the layers that have experts.
    """
    found: set[RankGroup] = set()
    for strategy in strategies:
        found |= {
            tensor_group(strategy),
            shard_group(strategy),
            replica_group(strategy, stage_ranks),
        }
    for strategy in with_experts:
        found |= {
            expert_group(strategy),
            expert_tensor_group(strategy),
            expert_shard_group(strategy, stage_ranks),
            expert_replica_group(strategy, stage_ranks),
        }
    for before, after in pairwise(strategies):
        if before.tp != after.tp:
            found |= set(batch_steps(before.tp, after.tp))
    return sorted(group for group in found if group.size > 1)


def batch_steps(tp_from: int, tp_to: int) -> list[RankGroup]:
    """The batch gathers and cuts that lead from one tensor-parallel degree to another.

    One step if one degree divides the other; otherwise cut down to their greatest common
    divisor first, then gather.
    """
    if tp_from == tp_to:
        return []
    low, high = sorted((tp_from, tp_to))
    if high % low == 0:
        return [batch_group(low, high)]
    common = math.gcd(tp_from, tp_to)
    return [batch_group(common, tp_from), batch_group(common, tp_to)]
