"""Families of plans: what a person would call another way to split the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ...spec.choices import Recompute
from ...spec.cluster.stack_spec import ShardKind
from ...spec.model.model_spec import BlockLayer, Layer
from ...spec.rules.stack_limits import shard_kind
from ...spec.strategy import LayerStrategy
from .evaluator import Outcome


class Family(NamedTuple):
    """Degrees, sharding and recomputation of most blocks of a plan."""

    pp: int
    tp: int
    ulysses: bool
    cp: int
    ep: int
    shard: ShardKind
    recompute: Recompute


def family_of(outcome: Outcome) -> Family:
    """Family of a plan."""
    layers = outcome.plan.models["main"].layers()
    strategies, stages = outcome.decision.strategies, outcome.plan.programs[0].stages
    strategy = _common(layers, strategies)
    ranks = stages[len(stages) // 2].device_count
    return strategy_family(strategy, ranks, len(stages))


def strategy_family(strategy: LayerStrategy, ranks: int, stages: int) -> Family:
    """Family of the uniform plans of a strategy."""
    n = strategy.state_ranks(ranks)
    return Family(
        pp=stages,
        tp=strategy.tp,
        ulysses=strategy.ulysses,
        cp=strategy.cp,
        ep=strategy.ep,
        shard="zero0" if n == 1 else shard_kind(strategy.shard, n),
        recompute=strategy.recompute,
    )


def _common(layers: Sequence[Layer], strategies: Sequence[LayerStrategy]) -> LayerStrategy:
    """Strategy of most blocks, the one with experts on a tie."""
    counts = Counter(
        strategy
        for layer, strategy in zip(layers, strategies, strict=True)
        if isinstance(layer, BlockLayer)
    )
    if not counts:
        return strategies[0]
    return max(counts, key=lambda strategy: (counts[strategy], strategy.ep))
