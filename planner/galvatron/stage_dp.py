"""Label-setting dynamic program of one stage, over counts of its strategies.

Layers of a type are interchangeable, so a plan of a stage is a count of each strategy. Strategies
are branched on in turn; a label holds the remaining layers, MB and seconds so far. A label is
dropped if it cannot be completed in memory, or if a bound on the whole step is no better than the
incumbent: for each linear form its value so far, plus the minimum of the remaining layers with
each MB at its multiplier in the relaxed knapsack, less that cost of the free MB. Every multiplier
gives a bound (Lagrangian relaxation), that one the tightest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..tables.arrays import Floats, Ints

ROUNDING = 1e-12
"""A bound this close to the best time counts as passing it."""


class StrategyRun(NamedTuple):
    """Like layers of a stage, with strategies' MB, seconds and reduction."""

    layers: int
    used_mb: Ints
    plain_s: Floats
    reduce_s: Floats


class StageForm(NamedTuple):
    """Linear form of the step, constant but for this stage.

    ``per_mb``: multiplier of MB.
    """

    plain: float
    reduce: float
    constant_s: float
    per_mb: float


@dataclass(frozen=True, slots=True)
class StageLabels:
    """Plans of a stage: step bound, MB, seconds, reduction, and strategy counts."""

    remaining: Ints
    used_mb: Ints
    plain_s: Floats
    reduce_s: Floats
    counts: Ints

    def take(self, rows: object) -> StageLabels:
        """The labels of some rows."""
        return StageLabels(*(getattr(self, name)[rows] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.remaining)


def stage_labels(
    runs: Sequence[StrategyRun],
    room_mb: int,
    forms: Sequence[StageForm],
    best_s: float,
    most: int | None = None,
) -> StageLabels:
    """Plans of a stage for steps possibly below ``best_s``.

    Args:
        runs: layers of the stage, by type.
        room_mb: MB for them.
        forms: of the step.
        best_s: seconds of the incumbent.
        most: number of labels kept, the most promising; None keeps all.
    """
    one = np.zeros(1, dtype=np.int64)
    labels = StageLabels(one, one, np.zeros(1), np.zeros(1), np.zeros((1, 0), dtype=np.int64))
    for number, run in enumerate(runs):
        labels = replace(labels, remaining=np.full(len(labels), run.layers))
        later_runs = _LaterRuns(runs[number + 1 :], forms)
        order = _branching_order(run, forms)
        for depth in range(len(order)):
            labels = _branch(labels, run, order, depth)
            bound, total_mb = later_runs.bound(labels, run, order[depth + 1 :], room_mb)
            keep = (total_mb <= room_mb) & (bound < best_s * (1 - ROUNDING))
            if most is not None and np.count_nonzero(keep) > most:
                keep &= bound <= np.partition(bound[keep], most - 1)[most - 1]
            labels = labels.take(keep)
        labels = _by_strategy(labels, len(order), order)
    return labels


def _branching_order(run: StrategyRun, forms: Sequence[StageForm]) -> list[int]:
    costs = [_reduced_cost(run, form) for form in forms]
    extra = np.min([cost - cost.min() for cost in costs], axis=0)
    return [int(k) for k in np.argsort(-extra, kind="stable")]


def _branch(labels: StageLabels, run: StrategyRun, order: Sequence[int], depth: int) -> StageLabels:
    """Each label with every number of layers on the next strategy."""
    k = order[depth]
    if depth == len(order) - 1:  # the last strategy takes the remaining layers
        number, rows = labels.remaining, np.arange(len(labels))
    else:
        rows = np.repeat(np.arange(len(labels)), labels.remaining + 1)
        starts = np.cumsum(labels.remaining + 1) - (labels.remaining + 1)
        number = np.arange(len(rows)) - starts[rows]
    return StageLabels(
        remaining=labels.remaining[rows] - number,
        used_mb=labels.used_mb[rows] + number * run.used_mb[k],
        plain_s=labels.plain_s[rows] + number * run.plain_s[k],
        reduce_s=labels.reduce_s[rows] + number * run.reduce_s[k],
        counts=np.column_stack([labels.counts[rows], number]),
    )


def _by_strategy(labels: StageLabels, width: int, order: Sequence[int]) -> StageLabels:
    before = labels.counts.shape[1] - width
    columns = list(range(before)) + [before + order.index(k) for k in range(width)]
    return replace(labels, counts=labels.counts[:, columns])


class _LaterRuns:
    """Minimum seconds and MB of runs not yet begun."""

    def __init__(self, runs: Sequence[StrategyRun], forms: Sequence[StageForm]) -> None:
        self._mb = sum(run.layers * int(run.used_mb.min()) for run in runs)
        self._forms = [
            (f, f.constant_s + sum(run.layers * float(_reduced_cost(run, f).min()) for run in runs))
            for f in forms
        ]

    def bound(
        self, labels: StageLabels, run: StrategyRun, later: Sequence[int], room_mb: int
    ) -> tuple[Floats, Ints]:
        """Step bounds and minimum stage MB of labels.

        Args:
            labels: plans so far.
            run: the current run.
            later: its strategies still to branch on.
            room_mb: MB of the stage.
        """
        bound = np.full(len(labels), -np.inf)
        for form, later_s in self._forms:
            value = later_s + form.plain * labels.plain_s + form.reduce * labels.reduce_s
            if later:
                least_s = float(_reduced_cost(run, form)[list(later)].min())
                value = value + labels.remaining * least_s
            np.maximum(bound, value - form.per_mb * (room_mb - labels.used_mb), out=bound)
        least_mb = int(run.used_mb[list(later)].min()) if later else 0
        return bound, labels.used_mb + labels.remaining * least_mb + self._mb


def _reduced_cost(run: StrategyRun, form: StageForm) -> Floats:
    return form.plain * run.plain_s + form.reduce * run.reduce_s + form.per_mb * run.used_mb
