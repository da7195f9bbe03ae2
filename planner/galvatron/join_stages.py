"""Plans of single stages joined to the step of all.

Walking along the stages, a label holds the seconds of the first stage, those of all so far, and
the largest reduction that shows. For one plan of the first stage a label that is later and shows
as much is dropped: every form of :mod:`forms` is no better with it. Galvatron's own formula can
be better with a slower middle stage, behind which a reduction hides, so the least of the forms
is given beside the best step: where they are equal the step is proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..tables.arrays import Floats, Ints


class ParetoFront(NamedTuple):
    """The plans of a stage of which none is better in both times: seconds, reduction, origin."""

    plain_s: Floats
    reduce_s: Floats
    parts: Ints
    places: Ints


class JoinedStep(NamedTuple):
    """The best step, its row in each stage's front, and the least of the forms."""

    step_s: float
    rows: list[int]
    bound_s: float


def pareto_front_of(plain_s: Sequence[Floats], reduce_s: Sequence[Floats]) -> ParetoFront:
    """The plans of a stage that no other is better than, out of several parts."""
    plain, reduce = np.concatenate(plain_s), np.concatenate(reduce_s)
    parts = np.repeat(np.arange(len(plain_s)), [len(part) for part in plain_s])
    places = np.concatenate([np.arange(len(part)) for part in plain_s])
    order = np.lexsort((reduce, plain))
    before = np.minimum.accumulate(np.concatenate([[np.inf], reduce[order][:-1]]))
    kept = order[reduce[order] < before]
    return ParetoFront(plain[kept], reduce[kept], parts[kept], places[kept])


class _Walk(NamedTuple):
    """Labels along the stages: first stage, seconds so far, what shows, and the rows taken."""

    first_s: Floats
    sum_s: Floats
    last_s: Floats
    shown_s: Floats
    early_s: Floats
    rows: Ints


def join_stages(fronts: Sequence[ParetoFront], microbatches: int) -> JoinedStep:
    """The best step that plans of the stages give together.

    Args:
        fronts: the plans of each stage.
        microbatches: micro-batches of a step, at least as many as stages.
    """
    head = fronts[0]
    shown = np.maximum(0.0, head.reduce_s)
    start = np.arange(len(head.plain_s))[:, None]
    walk = _Walk(head.plain_s, head.plain_s, head.plain_s, shown, shown, start)
    for stage, front in enumerate(fronts[1:], start=1):
        walk = _extend(walk, front, stage)
        if stage < len(fronts) - 1:
            walk = _prune(walk)
    m, p = microbatches, len(fronts)
    last = walk.sum_s + (m - 1) * walk.last_s
    steady = walk.sum_s - walk.first_s + (m + 1 - p) * walk.first_s
    first = m * walk.first_s
    late = np.maximum(last, steady) if p > 1 else first
    steps = np.maximum(late, first) + walk.shown_s
    bounds = np.maximum(late + walk.shown_s, first + walk.early_s)
    best = int(np.argmin(steps))
    return JoinedStep(float(steps[best]), walk.rows[best].tolist(), float(bounds.min()))


def _extend(walk: _Walk, front: ParetoFront, stage: int) -> _Walk:
    """Every label with every plan of the next stage."""
    old = np.repeat(np.arange(len(walk.sum_s)), len(front.plain_s))
    new = np.tile(np.arange(len(front.plain_s)), len(walk.sum_s))
    shown = front.reduce_s[new] - walk.sum_s[old]
    early = walk.early_s[old]
    return _Walk(
        first_s=walk.first_s[old],
        sum_s=walk.sum_s[old] + front.plain_s[new],
        last_s=front.plain_s[new],
        shown_s=np.maximum(walk.shown_s[old], shown),
        early_s=np.maximum(early, shown) if stage == 1 else early,
        rows=np.column_stack([walk.rows[old], new]),
    )


def _prune(walk: _Walk) -> _Walk:
    """Labels of one plan of the first stage that an earlier one shows no more than are dropped."""
    order = np.lexsort((walk.early_s, walk.shown_s, walk.sum_s, walk.rows[:, 0]))
    kept, first, shown, early = [], -1, np.inf, np.inf
    for row in order.tolist():
        if walk.rows[row, 0] != first:
            first, shown, early = int(walk.rows[row, 0]), np.inf, np.inf
        if walk.shown_s[row] < shown or walk.early_s[row] < early:
            kept.append(row)
            shown, early = min(shown, walk.shown_s[row]), min(early, walk.early_s[row])
    return _Walk(
        walk.first_s[kept],
        walk.sum_s[kept],
        walk.last_s[kept],
        walk.shown_s[kept],
        walk.early_s[kept],
        walk.rows[kept],
    )
