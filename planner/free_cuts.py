"""Lower bounds of pipelines of one chunk a stage, over all ways to cut the layers.

Stage s starts after the first micro-batch went forward through the layers before it, runs all of
its own passes, and the last micro-batch goes backward through the layers before it again (not
where weight gradients fill that time). So with f_l the least of a layer's first forward and last
backward, and M_l the least of all its passes, a step of T seconds lets a stage that starts at
layer i hold layers i..j-1 only if ``Σ_{l<i} f_l + Σ_{i≤l<j} M_l ≤ T``. Who takes as many layers as
that allows leaves the fewest to the stages behind; each is let start at the best layer up to
there, so one that may hold little may end before the one in front of it could. T is too short if
the stages, each taking all it can but a layer for every stage behind, do not reach the end.

A stage's memory counts by a price λ of bytes, as in :mod:`.priced_bytes`.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from .chain_weights import WAYS, laid_out
from .chains import every_pass, late_weights, outer_counts
from .pass_table import PassTable
from .path_bounds import ROUNDING, PathBounds
from .priced_bytes import best_price
from .shape import Shape

Floats = NDArray[np.float64]
HALVINGS = 20
"""Steps of the search for the least time: to a millionth of the range."""


def free_cut_bound(
    bounds: PathBounds, shape: Shape, budget_bytes: float, least_s: float, most_s: float
) -> float:
    """Least seconds of the passes of a pipeline, however its layers are cut.

    Args:
        bounds: of its place.
        shape: the pipeline, of one chunk a stage and without overlapping passes.
        budget_bytes: what a device may hold.
        least_s: what is known already, above 0.
        most_s: bounds from here on are not wanted.
    """
    reach = _Reach(bounds, shape, budget_bytes)
    low, high = least_s, min(most_s, 2 * least_s)
    while reach.falls_short(high):
        if high >= most_s:
            return most_s
        low, high = high, min(most_s, 2 * high)
    for _ in range(HALVINGS):
        if high - low <= 1e-4 * low:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if reach.falls_short(middle) else (low, middle)
    return low * (1 - ROUNDING)


class _Reach:
    """How far the stages of a pipeline get within a time."""

    def __init__(self, bounds: PathBounds, shape: Shape, budget_bytes: float) -> None:
        self._stages = shape.stages
        self._layers = len(bounds.kinds)
        layers = bounds.kinds
        every = every_pass(shape.kind, shape.microbatches)
        split = shape.kind == "zero_bubble"
        self._limits: list[list[_Limit]] = [[] for _ in range(shape.stages)]
        self._outer_once = 0.0
        for drains in (True, False) if split else (True,):
            outer = outer_counts(shape.kind, shape.microbatches, drains)
            before = self._before(bounds, outer)
            late = range(shape.stages if split and drains else 0)
            waiting = [late_weights(stage, shape.microbatches) for stage in late]
            for way in WAYS:
                known: _Limit | None = None
                for stage in range(shape.stages):
                    counts = every - waiting[stage] if waiting else every
                    if known is None or waiting:
                        least = {k: _least(t, counts, way) for k, t in bounds.tables.items()}
                        once = sum(_once(t, counts, way) for t in bounds.tables.values())
                        known = _Limit([least[k] for k in layers], before, -once)
                    self._limits[stage].append(known)
        for stage in range(shape.stages):
            priced = self._prices(bounds, shape, stage, every, before, budget_bytes)
            self._limits[stage] += [priced] if priced is not None else []

    def _before(self, bounds: PathBounds, outer: Floats) -> Floats:
        """Least seconds of the layers before each, in the passes that a stage waits for."""
        sums = []
        for way in WAYS:
            least = {k: _least(t, outer, way) for k, t in bounds.tables.items()}
            sums.append(list(accumulate((least[k] for k in bounds.kinds), initial=0.0)))
            once = sum(_once(t, outer, way) for t in bounds.tables.values())
            self._outer_once = min(self._outer_once, once)
        before: Floats = np.array(sums).max(axis=0)
        return before

    def _prices(
        self,
        bounds: PathBounds,
        shape: Shape,
        stage: int,
        every: Floats,
        before: Floats,
        budget_bytes: float,
    ) -> _Limit | None:
        """How far the stage gets with what it may hold; None where that is no limit."""
        held = shape.held(stage)[0]
        weights = laid_out(every * WAYS[0]).ravel()
        seconds = {
            kind: table.columns.reshape(len(table.strategies), -1) @ weights
            for kind, table in bounds.tables.items()
        }
        share, main = len(bounds.kinds) / shape.stages, bounds.tables[bounds.main]
        rows = [(share, seconds[bounds.main], main.bytes_at(held))]
        price = best_price(rows, budget_bytes)
        if price <= 0:
            return None
        least = {
            kind: float((seconds[kind] + price * table.bytes_at(held)).min())
            for kind, table in bounds.tables.items()
        }
        once = sum(_once(t, every, WAYS[0]) for t in bounds.tables.values())
        spare_s = price * budget_bytes - once
        return _Limit([least[k] for k in bounds.kinds], before, spare_s)

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


def _least(table: PassTable, counts: Floats, way: Floats) -> float:
    weights = laid_out(counts * way).ravel()
    used = weights.nonzero()[0]
    flat = table.columns.reshape(len(table.strategies), -1)
    return float((flat[:, used] @ weights[used]).min())


def _once(table: PassTable, counts: Floats, way: Floats) -> float:
    """What a row of such layers has once, which is never positive."""
    _, _, shared, _ = counts * way
    return float(shared @ table.once_s)
