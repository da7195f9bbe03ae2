"""The strategies that may stand in one plan together, and relaxed bounds of its stages.

Galvatron searches plans of tensor parallelism alone, of Ulysses alone, and of both, each up to a
largest degree, on which the size of the buffer that tensor-parallel layers gather into depends.
The first is part of the third at the same degree, so two kinds are left.
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
Kinds = tuple[tuple[int, int], ...]
"""(layer type, layers) along a stage."""


class StrategySet:
    """Strategies of layers and ends that share a largest degree.

    Args:
        job: the question.
        options: everything that may be chosen for its micro-batches and stages.
        degree: the largest degree.
        tensor_parallel: whether there may be tensor parallelism, else Ulysses alone.
    """

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
        self.kinds = _stage_kinds(job.layers, options.division)
        self._runs: dict[tuple[int, Orders | None], list[tuple[StrategyRun, list[int]]]] = {}
        self._knapsacks: dict[tuple[int, Orders | None, int, int], FractionalKnapsack] = {}
        self._sets: dict[Kinds, list[DegreeSets]] = {}

    @property
    def empty(self) -> bool:
        """Whether there is no plan in it."""
        return not self.ends or not len(self._allowed)

    def rooms(self, ends: HeadStrategy, usable_mb: int) -> list[int]:
        """MB for the layers of each stage."""
        return [usable_mb - own - self.buffer_mb for own in ends.used_mb]

    def sets(self, stage: int) -> list[DegreeSets]:
        """The choices of degrees of a stage, the cheapest changes first."""
        kinds = self.kinds[stage]
        if kinds not in self._sets:
            degrees = sorted(set(self._degrees.tolist()))
            self._sets[kinds] = degree_sets(kinds, degrees, self._change)
        return self._sets[kinds]

    def runs(self, stage: int, orders: Orders | None) -> list[tuple[StrategyRun, list[int]]]:
        """The runs of a stage and the numbers of their strategies, within some degrees.

        Strategies that another is no worse than in MB and both times are left out.
        """
        key = (stage, orders)
        if key not in self._runs:
            self._runs[key] = [
                self._run(stage, kind, count, None if orders is None else orders[number])
                for number, (kind, count) in enumerate(self.kinds[stage])
            ]
        return self._runs[key]

    def knapsack(
        self, stage: int, orders: Orders | None, plain: int, reduce: int
    ) -> FractionalKnapsack:
        """The relaxed knapsack of a stage under one objective."""
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
        self, stage: int, kind: int, count: int, degrees: Sequence[int] | None
    ) -> tuple[StrategyRun, list[int]]:
        numbers = self._allowed
        if degrees is not None:
            numbers = numbers[np.isin(self._degrees, degrees)]
        mb = self.options.used_mb[stage, kind, numbers]
        plain = self.options.plain_s[kind, numbers]
        reduce = self.options.reduce_s[kind, numbers]
        kept = _non_dominated(np.column_stack([mb, plain, reduce]))
        return StrategyRun(count, mb[kept], plain[kept], reduce[kept]), numbers[kept].tolist()

    def _change(self, kind: int, before: int, after: int) -> float:
        options = self.options
        return reshard_seconds(self.job, kind, before, after, options.stages, options.microbatches)


def strategy_sets_of(job: GalvatronJob, options: StrategyOptions) -> Iterator[StrategySet]:
    """Every field of a pair of micro-batches and stages that holds a plan."""
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


def _stage_kinds(layers: Sequence[int], division: Sequence[int]) -> list[Kinds]:
    types = [kind for kind, count in enumerate(layers) for _ in range(count)]
    found, start = [], 0
    for size in division:
        own = types[start : start + size]
        found.append(tuple((kind, own.count(kind)) for kind in dict.fromkeys(own)))
        start += size
    return found


def _non_dominated(rows: np.ndarray) -> list[int]:
    """Rows that no other one is no worse than in every column, the first of equal ones."""
    kept: list[int] = []
    for i, row in enumerate(rows):
        worse = (rows <= row).all(axis=1)
        better = worse & (rows < row).any(axis=1)
        equal_before = worse[:i] & ~better[:i]
        if not better.any() and not equal_before.any():
            kept.append(i)
    return kept
