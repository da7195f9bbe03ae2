"""Lower bounds of one-chunk pipelines, over all stage boundaries.

Stage s starts after the first micro-batch's forward through the layers before it, runs all of its
own passes, and the last micro-batch goes backward through those layers again (not where weight
gradients or reductions fill that time: a chain each). With f_l the minimum of a layer's first
forward and last backward, and M_l that of all its passes, a step of T seconds lets a stage that
starts at layer i hold layers i..j-1 only if ``Σ_{l<i} f_l + Σ_{i≤l<j} M_l ≤ T``. A stage with the
maximum number of layers leaves the fewest to those behind; each may start at the best layer up to
there, so one of little memory may end before the one in front of it could. T is too short if the
stages, each taking all it can but a layer for every stage behind, do not reach the end.

A stage's memory counts by a multiplier λ of bytes, as in ``lagrangian``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ...spec.schedules.stage_order import ScheduleKind
from ..chains.chain_weights import WEIGHTINGS, expand_weightings, of_column, weighted
from ..chains.lagrangian import best_multipliers, priced_s
from ..chains.pass_chains import (
    deferred_weight_passes,
    draining_counts,
    outer_counts,
    pass_counts,
)
from ..space.memory_budget import Budget
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Floats, as_matrix
from ..tables.pass_table import PassTable
from .aggregated_bounds import ROUNDING
from .pipeline_bounds import PipelineBounds

MAX_BISECTIONS = 20
"""Steps of the bisection: to a millionth of the range."""
STAGES_AT_ONCE = 16
"""Stages whose passes are weighted in one product."""


def free_boundary_bound(
    bounds: PipelineBounds, shape: PipelineShape, budget: Budget, least_s: float, most_s: float
) -> float:
    """Minimum seconds of a pipeline's passes over all stage boundaries.

    Args:
        bounds: of its stage context.
        shape: the pipeline, of one chunk a stage and without overlapping passes.
        budget: of a device.
        least_s: a known bound, above 0.
        most_s: upper limit of bounds of interest.
    """
    extent = _StageExtent(bounds, shape, budget)
    low, high = least_s, min(most_s, 2 * least_s)
    while extent.falls_short(high):
        if high >= most_s:
            return most_s
        low, high = high, min(most_s, 2 * high)
    for _ in range(MAX_BISECTIONS):
        if high - low <= 1e-4 * low:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if extent.falls_short(middle) else (low, middle)
    return low * (1 - ROUNDING)


class _StageExtent:
    """Last layers reached by stages of a pipeline within a time."""

    def __init__(self, bounds: PipelineBounds, shape: PipelineShape, budget: Budget) -> None:
        self._stages = shape.stages
        self._layers = len(bounds.layer_classes)
        self._limits: list[list[_Limit]] = [[] for _ in range(shape.stages)]
        self._outer_once = 0.0
        for drains in (True, False):
            weighted_limits = _weighted_limits(bounds, shape.kind, shape.microbatches, drains)
            self._outer_once = min(self._outer_once, weighted_limits.outer_once)
            for stage, limits in enumerate(self._limits):
                limits += weighted_limits.limits(stage)
            if not weighted_limits.defers_weights:
                counts, before = weighted_limits.pass_counts, weighted_limits.before
                self._add_memory_limits(bounds, shape, counts, before, budget)

    def _add_memory_limits(
        self,
        bounds: PipelineBounds,
        shape: PipelineShape,
        counts: Floats,
        before: Floats,
        budget: Budget,
    ) -> None:
        """Add the limits of stages short of memory."""
        tables, main_class = bounds.tables, bounds.main_class
        (weights,) = as_matrix(expand_weightings(counts * WEIGHTINGS[0]))
        seconds = {k: as_matrix(table.columns) @ weights for k, table in tables.items()}
        once_s = sum(float(_once(t, counts, WEIGHTINGS[:1])[0]) for t in tables.values())
        share = len(bounds.layer_classes) / shape.stages
        for stage in range(shape.stages):
            in_flight = shape.peak_in_flight(stage)[0]
            rows = [(share, seconds[main_class], tables[main_class].memory_at(in_flight))]
            multipliers = best_multipliers(rows, budget)
            if not multipliers.any():
                continue
            least_s = {
                k: float(priced_s(seconds[k], table.memory_at(in_flight), multipliers).min())
                for k, table in tables.items()
            }
            layers_s = [least_s[k] for k in bounds.layer_classes]
            priced = zip(multipliers.tolist(), budget, strict=True)
            spare_s = sum(multiplier * size for multiplier, size in priced) - once_s
            self._limits[stage].append(_Limit(layers_s, before, spare_s))

    def falls_short(self, seconds: float) -> bool:
        """True if no boundaries let every stage finish in this time."""
        start = 0
        for stage in range(self._stages):
            remaining_s = seconds - stage * self._outer_once
            stop = min(limit.stop(start, remaining_s) for limit in self._limits[stage])
            if stop <= stage:  # the stages up to here hold a layer each
                return True
            # A later stage may hold less, and so reach further from a layer before.
            start = min(stop, self._layers - (self._stages - 1 - stage))
        return start < self._layers


class _WeightedLimits:
    """Limits of stages of one context, schedule and micro-batch count.

    Args:
        bounds: of the stage context.
        schedule: its name.
        microbatches: of one step.
        drains: True if the chain ends with the last backward's way to the first stage.

    ``before``: minimum seconds of the layers before each, in the passes a stage waits for.
    ``pass_counts``: of a stage; ``defers_weights``: True if it puts off some of them.
    """

    def __init__(
        self, bounds: PipelineBounds, schedule: ScheduleKind, microbatches: int, drains: bool
    ) -> None:
        self._bounds, self._microbatches = bounds, microbatches
        counts_of = draining_counts if drains else pass_counts
        self.pass_counts = counts_of(schedule, microbatches)
        self.defers_weights = schedule == "zero_bubble" and drains
        (outer,) = _by_weighting(bounds, outer_counts(schedule, microbatches, drains)[None])
        self.outer_once = min(0.0, float(outer.once_s.min()))
        sums = np.cumsum([outer.least_s[k] for k in bounds.layer_classes], axis=0)
        self.before: Floats = np.concatenate([[0.0], sums.max(axis=1)])
        self._stage_limits: list[list[_Limit]] = []

    def limits(self, stage: int) -> list[_Limit]:
        """Limits of a stage by weightings of its passes."""
        number = stage if self.defers_weights else 0
        if number >= len(self._stage_limits):
            counts = self.pass_counts[None]
            if self.defers_weights:
                stages = range(len(self._stage_limits), number + STAGES_AT_ONCE)
                deferred = [deferred_weight_passes(s, self._microbatches) for s in stages]
                counts = self.pass_counts - np.array(deferred)
            self._stage_limits += [
                _limits(by_weighting, self._bounds.layer_classes, self.before)
                for by_weighting in _by_weighting(self._bounds, counts)
            ]
        return self._stage_limits[number]


def _weighted_limits(
    bounds: PipelineBounds, schedule: ScheduleKind, microbatches: int, drains: bool
) -> _WeightedLimits:
    key = ("free boundaries", schedule, microbatches, drains)
    if key not in bounds.cache:
        bounds.cache[key] = _WeightedLimits(bounds, schedule, microbatches, drains)
    limits: _WeightedLimits = bounds.cache[key]
    return limits


class _Limit:
    """Last layer reached by a stage, by its latest start.

    Args:
        layers_s: minimum seconds of the stage's passes of each layer.
        before: seconds before and after it for all layers up to each.
        spare_s: additional seconds.
    """

    def __init__(self, layers_s: list[float], before: Floats, spare_s: float) -> None:
        self._sums = list(accumulate(layers_s, initial=0.0))
        head_starts = np.array(self._sums) - before
        self._from = (np.maximum.accumulate(head_starts) + spare_s).tolist()

    def stop(self, start: int, seconds: float) -> int:
        """Layer after the last that fits."""
        return bisect_right(self._sums, self._from[start] + seconds) - 1


class _ByWeighting(NamedTuple):
    """Seconds of passes by weighting, shape (weightings,).

    ``least_s``: of a layer of each class; ``once_s``: once a row of layers, never positive.
    """

    least_s: Mapping[int, Floats]
    once_s: Floats


def _by_weighting(bounds: PipelineBounds, counts: Floats) -> list[_ByWeighting]:
    """Seconds of passes for each row of ``counts``, shape (rows, KINDS)."""
    least_s = {k: _least(table, counts) for k, table in bounds.tables.items()}
    once_s = sum(_once(table, counts[:, None], WEIGHTINGS) for table in bounds.tables.values())
    rows = zip(*least_s.values(), strict=True)
    return [
        _ByWeighting(dict(zip(least_s, row, strict=True)), row_once_s)
        for row, row_once_s in zip(rows, np.asarray(once_s), strict=True)
    ]


def _least(table: PassTable, counts: Floats) -> Floats:
    """Minimum seconds of a layer, shape (rows of ``counts``, weightings)."""
    weights = expand_weightings(counts[:, None, None] * WEIGHTINGS)
    least_s: Floats = weighted(table, weights).min(axis=0)
    return least_s


def _once(table: PassTable, counts: Floats, weightings: Floats) -> Floats:
    """Excess of columns, never positive."""
    slowdown, traffic = of_column(weightings, "slowdown"), of_column(weightings, "traffic")
    once_s: Floats = (counts * slowdown) @ table.once_s
    return once_s + (counts * traffic) @ table.traffic_once_s


def _limits(
    by_weighting: _ByWeighting, layer_classes: Sequence[int], before: Floats
) -> list[_Limit]:
    """Limits of the non-dominated weightings."""
    least_s, once_s = by_weighting
    figures = np.stack([*least_s.values(), once_s], axis=1)
    kept: list[int] = []
    for weighting in np.lexsort(figures.T)[::-1].tolist():
        if not any((figures[other] >= figures[weighting]).all() for other in kept):
            kept.append(weighting)
    return [
        _Limit([float(least_s[k][n]) for k in layer_classes], before, -float(once_s[n]))
        for n in kept
    ]
