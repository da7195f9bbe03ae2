"""Lower bounds of pipelines of one chunk a stage, over all ways to cut the layers.

Stage s starts after the first micro-batch went forward through the layers before it, runs all of
its own passes, and the last micro-batch goes backward through the layers before it again (not
where weight gradients fill that time). So with f_l the least of a layer's first forward and last
backward, and M_l the least of all its passes, a step of T seconds lets a stage that starts at
layer i hold layers i..j-1 only if ``Σ_{l<i} f_l + Σ_{i≤l<j} M_l ≤ T``. Who takes as many layers as
that allows leaves the fewest to the stages behind; each is let start at the best layer up to
there, so one that may hold little may end before the one in front of it could. T is too short if
the stages, each taking all it can but a layer for every stage behind, do not reach the end.

A stage's memory counts by a price λ of bytes, as in :mod:`lagrangian`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...spec.schedules.stage_order import ScheduleKind
from ..chains.chain_weights import WEIGHTED_COLUMNS, WEIGHTINGS, expand_weightings, weighted
from ..chains.lagrangian import best_multiplier
from ..chains.pass_chains import deferred_weight_passes, outer_counts, pass_counts
from ..space.pipeline_shape import PipelineShape
from ..tables.pass_table import SHARED, PassTable
from .pipeline_bounds import ROUNDING, PipelineBounds

Floats = NDArray[np.float64]
MAX_BISECTIONS = 20
"""Steps of the search for the least time: to a millionth of the range."""
STAGES_AT_ONCE = 16
"""Stages whose passes are weighed in one product."""


def free_boundary_bound(
    bounds: PipelineBounds, shape: PipelineShape, budget_bytes: float, least_s: float, most_s: float
) -> float:
    """Least seconds of the passes of a pipeline, however its layers are cut.

    Args:
        bounds: of its place.
        shape: the pipeline, of one chunk a stage and without overlapping passes.
        budget_bytes: what a device may hold.
        least_s: what is known already, above 0.
        most_s: bounds from here on are not wanted.
    """
    reach = _StageExtent(bounds, shape, budget_bytes)
    low, high = least_s, min(most_s, 2 * least_s)
    while reach.falls_short(high):
        if high >= most_s:
            return most_s
        low, high = high, min(most_s, 2 * high)
    for _ in range(MAX_BISECTIONS):
        if high - low <= 1e-4 * low:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if reach.falls_short(middle) else (low, middle)
    return low * (1 - ROUNDING)


class _StageExtent:
    """How far the stages of a pipeline get within a time."""

    def __init__(self, bounds: PipelineBounds, shape: PipelineShape, budget_bytes: float) -> None:
        self._stages = shape.stages
        self._layers = len(bounds.layer_classes)
        every = pass_counts(shape.kind, shape.microbatches)
        self._limits: list[list[_Limit]] = [[] for _ in range(shape.stages)]
        self._outer_once = 0.0
        for drains in (True, False) if shape.kind == "zero_bubble" else (True,):
            known = _weighted_limits(bounds, shape.kind, shape.microbatches, drains)
            self._outer_once = min(self._outer_once, known.outer_once)
            for stage, limits in enumerate(self._limits):
                limits += known.limits(stage)
        self._add_memory_limits(bounds, shape, every, known.before, budget_bytes)

    def _add_memory_limits(
        self,
        bounds: PipelineBounds,
        shape: PipelineShape,
        every: Floats,
        before: Floats,
        budget_bytes: float,
    ) -> None:
        """How far each stage gets with what it may hold, where that is a limit."""
        weights = expand_weightings(every * WEIGHTINGS[0]).ravel()
        seconds = {
            kind: table.columns.reshape(len(table.strategies), -1) @ weights
            for kind, table in bounds.tables.items()
        }
        once_s = sum(float(_once(t, every, WEIGHTINGS[:1])[0]) for t in bounds.tables.values())
        share, main = len(bounds.layer_classes) / shape.stages, bounds.tables[bounds.main]
        for stage in range(shape.stages):
            peak_in_flight = shape.peak_in_flight(stage)[0]
            rows = [(share, seconds[bounds.main], main.bytes_at(peak_in_flight))]
            multiplier = best_multiplier(rows, budget_bytes)
            if multiplier <= 0:
                continue
            least = {
                kind: float((seconds[kind] + multiplier * table.bytes_at(peak_in_flight)).min())
                for kind, table in bounds.tables.items()
            }
            own = [least[k] for k in bounds.layer_classes]
            self._limits[stage].append(_Limit(own, before, multiplier * budget_bytes - once_s))

    def falls_short(self, seconds: float) -> bool:
        """Whether no cut lets every stage be done in this time."""
        start = 0
        for stage in range(self._stages):
            left_s = seconds - stage * self._outer_once
            stop = min(limit.stop(start, left_s) for limit in self._limits[stage])
            if stop <= stage:  # the stages up to here hold a layer each
                return True
            # A later stage may hold less, and so reach further from a layer before.
            start = min(stop, self._layers - (self._stages - 1 - stage))
        return start < self._layers


class _WeightedLimits:
    """Limits of the stages of all pipelines of a place with one schedule and micro-batches.

    Args:
        bounds: of the place.
        kind: schedule name.
        microbatches: of one step.
        drains: whether the chain ends with the last backward's way back to the first stage.

    ``before`` are least seconds of the layers before each in the passes that a stage waits for.
    """

    def __init__(
        self, bounds: PipelineBounds, kind: ScheduleKind, microbatches: int, drains: bool
    ) -> None:
        self._bounds, self._microbatches = bounds, microbatches
        self._every = pass_counts(kind, microbatches)
        self._is_late = kind == "zero_bubble" and drains
        (outer,) = _by_weighting(bounds, outer_counts(kind, microbatches, drains)[None])
        self.outer_once = min(0.0, float(outer.once_s.min()))
        sums = np.cumsum([outer.least_s[k] for k in bounds.layer_classes], axis=0)
        self.before: Floats = np.concatenate([[0.0], sums.max(axis=1)])
        self._of_stages: list[list[_Limit]] = []

    def limits(self, stage: int) -> list[_Limit]:
        """How far a stage gets, by each way to weigh its passes."""
        number = stage if self._is_late else 0
        if number >= len(self._of_stages):
            stages = range(len(self._of_stages), number + STAGES_AT_ONCE)
            late = [deferred_weight_passes(s, self._microbatches) for s in stages]
            counts = self._every - np.array(late) if self._is_late else self._every[None]
            own = _by_weighting(self._bounds, counts)
            self._of_stages += [
                _limits(each, self._bounds.layer_classes, self.before) for each in own
            ]
        return self._of_stages[number]


def _weighted_limits(
    bounds: PipelineBounds, kind: ScheduleKind, microbatches: int, drains: bool
) -> _WeightedLimits:
    key = ("free cuts", kind, microbatches, drains)
    if key not in bounds.kept:
        bounds.kept[key] = _WeightedLimits(bounds, kind, microbatches, drains)
    found: _WeightedLimits = bounds.kept[key]
    return found


class _Limit:
    """How far a stage gets that starts anywhere up to a layer.

    Args:
        own: least seconds of the stage's passes of each layer.
        before: seconds that go by before it for all layers up to each, and after it.
        spare_s: what it may take besides.
    """

    def __init__(self, own: list[float], before: Floats, spare_s: float) -> None:
        self._sums = list(accumulate(own, initial=0.0))
        head_starts = np.array(self._sums) - before
        self._from = (np.maximum.accumulate(head_starts) + spare_s).tolist()

    def stop(self, start: int, seconds: float) -> int:
        """The layer after the last that fits."""
        return bisect_right(self._sums, self._from[start] + seconds) - 1


class _ByWeighting(NamedTuple):
    """What passes take by each way to weigh them, shape (ways,).

    ``least_s``: of a layer of each kind; ``once_s``: what a row of layers has once, which is never
    positive.
    """

    least_s: Mapping[int, Floats]
    once_s: Floats


def _by_weighting(bounds: PipelineBounds, counts: Floats) -> list[_ByWeighting]:
    """What passes take that are counted by ``counts``, shape (rows, KINDS), one for each row."""
    least_s = {kind: _least(table, counts) for kind, table in bounds.tables.items()}
    once_s = sum(_once(table, counts[:, None], WEIGHTINGS) for table in bounds.tables.values())
    rows = zip(*least_s.values(), strict=True)
    return [
        _ByWeighting(dict(zip(least_s, own, strict=True)), once)
        for own, once in zip(rows, np.asarray(once_s), strict=True)
    ]


def _least(table: PassTable, counts: Floats) -> Floats:
    """Least seconds of a layer for each row of ``counts`` and each way, shape (rows, ways)."""
    found: Floats = weighted(table, expand_weightings(counts[:, None, None] * WEIGHTINGS)).min(
        axis=0
    )
    return found


def _once(table: PassTable, counts: Floats, weightings: Floats) -> Floats:
    """What a row of such layers has once, by way."""
    found: Floats = (counts * weightings[:, WEIGHTED_COLUMNS.index(SHARED)]) @ table.once_s
    return found


def _limits(own: _ByWeighting, layers: Sequence[int], before: Floats) -> list[_Limit]:
    """Limits of the ways that none other is as strict as everywhere."""
    figures = np.stack([*own.least_s.values(), own.once_s], axis=1)
    kept: list[int] = []
    for way in np.lexsort(figures.T)[::-1].tolist():
        if not any((figures[other] >= figures[way]).all() for other in kept):
            kept.append(way)
    return [
        _Limit([float(own.least_s[k][way]) for k in layers], before, -float(own.once_s[way]))
        for way in kept
    ]
