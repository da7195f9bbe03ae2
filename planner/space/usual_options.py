"""Options for heuristics of large shapes: what is common, where options are many."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.strategy import LayerStrategy
from .joined_strategies import Strategies, StrategyFilter, parts_of
from .shard_levels import group_sizes

FEW_OPTIONS, MANY_OPTIONS = 128, 2048
"""Fewer options are left whole; more than the second have few values of techniques."""


class FewValues:
    """Strategies of few values: where they are many, each technique is off or at its last one."""

    def __init__(self) -> None:
        self._filters: dict[frozenset[tuple[str, Any]], StrategyFilter] = {}
        self._last: dict[int, tuple[dict[str, Any], Strategies]] = {}

    def __call__(self, strategies: Strategies) -> Strategies:
        """Those of few values; all without techniques."""
        last = {} if len(strategies) < MANY_OPTIONS else self._last_values(strategies)
        if not last:
            return strategies
        key = frozenset(last.items())
        if key not in self._filters:
            self._filters[key] = StrategyFilter(lambda s: s.techniques.items() <= last.items())
        return self._filters[key](strategies)

    def _last_values(self, strategies: Strategies) -> dict[str, Any]:
        """The last value of each technique, in the order of strategies."""
        entry = self._last.get(id(strategies))
        if entry is None:
            parts, last = parts_of(strategies), dict[str, Any]()
            for values in map(self._last_values, parts) if parts else _techniques(strategies):
                last.update(values)
            entry = self._last[id(strategies)] = (last, strategies)
        return entry[0]


class UsualOptions:
    """Options that are common on a cluster, found once."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        self._few_values = FewValues()
        self._filters: dict[int, StrategyFilter] = {}

    def of(self, options: Strategies, ranks: int) -> Strategies:
        """The usual ones of a layer's options on so many ranks; all if none is common."""
        if ranks not in self._filters:
            self._filters[ranks] = StrategyFilter(lambda strategy: self._is_usual(strategy, ranks))
        common = self._filters[ranks](options) if len(options) > FEW_OPTIONS else ()
        return self._few_values(common or options)

    def _is_usual(self, strategy: LayerStrategy, ranks: int) -> bool:
        shard, split = strategy.shard, strategy.weight_split
        whole = shard.parameters in (1, strategy.state_ranks(ranks))
        nested = whole or shard.parameters * split in self._level_sizes
        return nested and max(strategy.tp, strategy.etp) <= self._inner_ranks

    @cached_property
    def _level_sizes(self) -> frozenset[int]:
        return frozenset(group_sizes(self._cluster).values())

    @cached_property
    def _inner_ranks(self) -> int:
        sizes = [level.group_size for level in self._cluster.levels if level.group_size > 1]
        return min(sizes, default=1)


def _techniques(strategies: Strategies) -> list[dict[str, Any]]:
    """Distinct values of strategies, in their order; most share the objects."""
    return list({id(s.techniques): s.techniques for s in strategies}.values())
