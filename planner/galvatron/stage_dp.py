"""The plans of one stage that can be part of a better whole: labels over counts of strategies.

Layers of a kind are alike, so a stage is how many of them take each strategy. Strategies are
taken in turn; a label holds the layers that are left, the MB and the seconds so far. A label is
dropped where it cannot be completed in memory, or where a bound on the whole step is no better
than the best known: for each linear form of the step its value so far, what the layers left
take at least when each MB costs its price in the relaxed knapsack, less that price of the MB that
are free. For every price this is a bound (Lagrangian relaxation), at that one the tightest.
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
    """Layers of one kind in a stage and what each may be: MB, seconds, seconds of reducing."""

    layers: int
    used_mb: Ints
    plain_s: Floats
    reduce_s: Floats


class StageForm(NamedTuple):
    """A linear form of the step, of which all but this stage is a constant.

    ``per_mb`` is what a MB is worth.
    """

    plain: float
    reduce: float
    constant_s: float
    per_mb: float


@dataclass(frozen=True, slots=True)
class StageLabels:
    """Plans of a stage: bound on the step, MB, seconds, reduction, and counts by strategy."""

    left: Ints
    used_mb: Ints
    plain_s: Floats
    reduce_s: Floats
    counts: Ints

    def taken(self, rows: object) -> StageLabels:
        """Some of them."""
        return StageLabels(*(getattr(self, name)[rows] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.left)


def stage_labels(
    runs: Sequence[StrategyRun],
    room_mb: int,
    forms: Sequence[StageForm],
    best_s: float,
    most: int | None = None,
) -> StageLabels:
    """Every way to fill a stage that may be part of a step below ``best_s``.

    Args:
        runs: kinds of layers in the stage.
        room_mb: MB for them.
        forms: the forms of the step.
        best_s: the best step known.
        most: keep so many labels at a time, the most promising ones; None keeps all.
    """
    one = np.zeros(1, dtype=np.int64)
    labels = StageLabels(one, one, np.zeros(1), np.zeros(1), np.zeros((1, 0), dtype=np.int64))
    for number, run in enumerate(runs):
        labels = replace(labels, left=np.full(len(labels), run.layers))
        rest = _Rest(runs[number + 1 :], forms)
        order = _turns(run, forms)
        for turn in range(len(order)):
            labels = _extended(labels, run, order, turn)
            bound, whole_mb = rest.bound(labels, run, order[turn + 1 :], room_mb)
            keep = (whole_mb <= room_mb) & (bound < best_s * (1 - ROUNDING))
            if most is not None and np.count_nonzero(keep) > most:
                keep &= bound <= np.partition(bound[keep], most - 1)[most - 1]
            labels = labels.taken(keep)
        labels = _in_order(labels, len(order), order)
    return labels


def _turns(run: StrategyRun, forms: Sequence[StageForm]) -> list[int]:
    """The strategies in turn: first those that a good plan takes few of."""
    worth = [f.plain * run.plain_s + f.reduce * run.reduce_s + f.per_mb * run.used_mb
             for f in forms]  # fmt: skip
    extra = np.min([w - w.min() for w in worth], axis=0)
    return [int(k) for k in np.argsort(-extra, kind="stable")]


def _extended(
    labels: StageLabels, run: StrategyRun, order: Sequence[int], turn: int
) -> StageLabels:
    """Each label with every number of layers on the strategy whose turn it is."""
    k = order[turn]
    if turn == len(order) - 1:  # the last strategy takes the layers that are left
        number, rows = labels.left, np.arange(len(labels))
    else:
        rows = np.repeat(np.arange(len(labels)), labels.left + 1)
        starts = np.cumsum(labels.left + 1) - (labels.left + 1)
        number = np.arange(len(rows)) - starts[rows]
    return StageLabels(
        left=labels.left[rows] - number,
        used_mb=labels.used_mb[rows] + number * run.used_mb[k],
        plain_s=labels.plain_s[rows] + number * run.plain_s[k],
        reduce_s=labels.reduce_s[rows] + number * run.reduce_s[k],
        counts=np.column_stack([labels.counts[rows], number]),
    )


def _in_order(labels: StageLabels, width: int, order: Sequence[int]) -> StageLabels:
    """The counts of the last run by strategy, not by turn."""
    before = labels.counts.shape[1] - width
    columns = list(range(before)) + [before + order.index(k) for k in range(width)]
    return replace(labels, counts=labels.counts[:, columns])


class _Rest:
    """What runs that have not begun need at least.

    Args:
        runs: those runs.
        forms: the forms of the step.
    """

    def __init__(self, runs: Sequence[StrategyRun], forms: Sequence[StageForm]) -> None:
        self._mb = sum(run.layers * int(run.used_mb.min()) for run in runs)
        self._forms = [
            (f, f.constant_s + sum(run.layers * float(_priced(run, f).min()) for run in runs))
            for f in forms
        ]

    def bound(
        self, labels: StageLabels, run: StrategyRun, after: Sequence[int], room_mb: int
    ) -> tuple[Floats, Ints]:
        """Bounds on the step, and the least MB of the stage, of labels.

        Args:
            labels: plans so far.
            run: the run that is being filled.
            after: its strategies whose turn is still to come.
            room_mb: MB of the stage.
        """
        bound = np.full(len(labels), -np.inf)
        for form, rest in self._forms:
            value = rest + form.plain * labels.plain_s + form.reduce * labels.reduce_s
            if after:
                value = value + labels.left * float(_priced(run, form)[list(after)].min())
            np.maximum(bound, value - form.per_mb * (room_mb - labels.used_mb), out=bound)
        least = int(run.used_mb[list(after)].min()) if after else 0
        return bound, labels.used_mb + labels.left * least + self._mb


def _priced(run: StrategyRun, form: StageForm) -> Floats:
    """What each strategy of a run adds to a form, its MB paid for."""
    return form.plain * run.plain_s + form.reduce * run.reduce_s + form.per_mb * run.used_mb
