"""Strategy sets of single plans, and relaxed bounds of their stages.

Galvatron searches plans of tensor parallelism alone, of Ulysses alone, and of both, each up to a
largest degree, which fixes the gather buffer of tensor-parallel layers. The first is part of the
third at the same degree, so two types of set are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...costmodel.galvatron.job import GalvatronJob
from ...costmodel.galvatron.plan_cost import least_buffer_degree
from ...costmodel.galvatron.reshard import reshard_seconds
from .degree_sets import DegreeSets, degree_sets
from .options import MOST_DEGREE, HeadStrategy, StrategyOptions
from .stage_dp import StrategyRun
from .stage_knapsack import FractionalKnapsack

Orders = tuple[tuple[int, ...], ...]
LayerTypes = tuple[tuple[int, int], ...]
"""(layer type, layers) along a stage."""


class StrategySet:
    """Strategies of layers and ends with a common largest degree."""

    def __init__(
        self, job: GalvatronJob, options: StrategyOptions, degree: int, tensor_parallel: bool
    ) -> None:
        self.job = job
        self.options = options
        buffer = job.buffer_mb(options.microbatches, options.stages, degree)
        self.buffer_mb = buffer if tensor_parallel else 0
        self.ends: list[HeadStrategy] = [
            e for e in options.ends
            if e.strategy.degree <= degree and (tensor_parallel or e.strategy.tp == 1)
        ]  # fmt: skip
        allowed = [
            k for k, s in enumerate(options.strategies)
            if s.degree <= degree and (tensor_parallel or s.tp == 1)
        ]  # fmt: skip
        self._allowed = np.array(allowed, dtype=np.int64)
        self._degrees = np.array([options.strategies[k].degree for k in allowed])
        self.stage_types = _stage_types(job.layers, options.division)
        self._runs: dict[tuple[int, Orders | None], list[tuple[StrategyRun, list[int]]]] = {}
        self._knapsacks: dict[tuple[int, Orders | None, int, int], FractionalKnapsack] = {}
        self._sets: dict[LayerTypes, list[DegreeSets]] = {}

    @property
    def empty(self) -> bool:
        """True if it has no plan."""
        return not self.ends or not len(self._allowed)

    def rooms(self, ends: HeadStrategy, usable_mb: int) -> list[int]:
        """MB for the layers of each stage."""
        return [usable_mb - ends_mb - self.buffer_mb for ends_mb in ends.used_mb]

    def sets(self, stage: int) -> list[DegreeSets]:
        """Degree sets of a stage, cheapest changes first."""
        types = self.stage_types[stage]
        if types not in self._sets:
            degrees = sorted(set(self._degrees.tolist()))
            self._sets[types] = degree_sets(types, degrees, self._change)
        return self._sets[types]

    def runs(self, stage: int, orders: Orders | None) -> list[tuple[StrategyRun, list[int]]]:
        """Runs of a stage and their strategy numbers, within some degrees.

        Strategies dominated in MB and both times are left out.
        """
        key = (stage, orders)
        if key not in self._runs:
            self._runs[key] = [
                self._run(stage, layer_type, count, None if orders is None else orders[number])
                for number, (layer_type, count) in enumerate(self.stage_types[stage])
            ]
        return self._runs[key]

    def knapsack(
        self, stage: int, orders: Orders | None, plain: int, reduce: int
    ) -> FractionalKnapsack:
        """Relaxed knapsack of a stage under one objective."""
        key = (stage, orders, plain, reduce)
        if key not in self._knapsacks:
            self._knapsacks[key] = FractionalKnapsack(
                [
                    (run.layers, run.used_mb, plain * run.plain_s + reduce * run.reduce_s)
                    for run, _ in self.runs(stage, orders)
                ]
            )
        return self._knapsacks[key]

    def _run(
        self, stage: int, layer_type: int, count: int, degrees: Sequence[int] | None
    ) -> tuple[StrategyRun, list[int]]:
        numbers = self._allowed
        if degrees is not None:
            numbers = numbers[np.isin(self._degrees, degrees)]
        mb = self.options.used_mb[stage, layer_type, numbers]
        plain = self.options.plain_s[layer_type, numbers]
        reduce = self.options.reduce_s[layer_type, numbers]
        kept = _non_dominated(np.column_stack([mb, plain, reduce]))
        return StrategyRun(count, mb[kept], plain[kept], reduce[kept]), numbers[kept].tolist()

    def _change(self, layer_type: int, before: int, after: int) -> float:
        stages, microbatches = self.options.stages, self.options.microbatches
        return reshard_seconds(self.job, layer_type, before, after, stages, microbatches)


def strategy_sets_of(job: GalvatronJob, options: StrategyOptions) -> Iterator[StrategySet]:
    """Non-empty sets for a pair of micro-batches and stages."""
    m, p = options.microbatches, options.stages
    most = min(MOST_DEGREE, job.devices // p)
    alone = StrategySet(job, options, most, tensor_parallel=False)
    if not alone.empty:
        yield alone
    degree = least_buffer_degree(job, m, p)
    while degree <= most:
        both = StrategySet(job, options, degree, tensor_parallel=True)
        if not both.empty:
            yield both
        degree *= 2


def _stage_types(layers: Sequence[int], division: Sequence[int]) -> list[LayerTypes]:
    types = [layer_type for layer_type, count in enumerate(layers) for _ in range(count)]
    stages, start = [], 0
    for size in division:
        stage = types[start : start + size]
        stages.append(tuple((t, stage.count(t)) for t in dict.fromkeys(stage)))
        start += size
    return stages


def _non_dominated(rows: np.ndarray) -> list[int]:
    kept: list[int] = []
    for i, row in enumerate(rows):
        no_worse = (rows <= row).all(axis=1)
        better = no_worse & (rows < row).any(axis=1)
        equal_before = no_worse[:i] & ~better[:i]
        if not better.any() and not equal_before.any():
            kept.append(i)
    return kept
