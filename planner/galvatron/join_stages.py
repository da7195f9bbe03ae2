"""Join of stage plans into a step, by label setting.

A label holds the seconds of the first stage, of all so far, and the largest exposed reduction. For
one plan of the first stage a later label with no less exposed is dropped: every form of
``step_lower_forms`` is no better with it. Galvatron's own formula can gain from a slower middle
stage that hides a reduction, so the forms' minimum is returned with the best step: where equal,
the step is proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..tables.arrays import Floats, Ints


class ParetoFront(NamedTuple):
    """Pareto-optimal plans of a stage: seconds, reduction, part and row."""

    plain_s: Floats
    reduce_s: Floats
    parts: Ints
    rows: Ints


class JoinedStep(NamedTuple):
    """Best step, its row in each stage's front, and the forms' minimum."""

    step_s: float
    rows: list[int]
    bound_s: float


def pareto_front_of(plain_s: Sequence[Floats], reduce_s: Sequence[Floats]) -> ParetoFront:
    """Pareto front of a stage's plans in several parts."""
    plain, reduce = np.concatenate(plain_s), np.concatenate(reduce_s)
    parts = np.repeat(np.arange(len(plain_s)), [len(part) for part in plain_s])
    rows = np.concatenate([np.arange(len(part)) for part in plain_s])
    order = np.lexsort((reduce, plain))
    before = np.minimum.accumulate(np.concatenate([[np.inf], reduce[order][:-1]]))
    kept = order[reduce[order] < before]
    return ParetoFront(plain[kept], reduce[kept], parts[kept], rows[kept])


class _Labels(NamedTuple):
    """Labels along the stages.

    ``first_s``, ``sum_s`` and ``last_s``: seconds of the first stage, of all so far, of the last.
    ``exposed_s``: largest exposed reduction; ``early_s``: of the first two stages. ``rows``: in
    each stage's front.
    """

    first_s: Floats
    sum_s: Floats
    last_s: Floats
    exposed_s: Floats
    early_s: Floats
    rows: Ints


def join_stages(fronts: Sequence[ParetoFront], microbatches: int) -> JoinedStep:
    """Best step with one plan a stage."""
    first = fronts[0]
    exposed_s = np.maximum(0.0, first.reduce_s)
    rows = np.arange(len(first.plain_s))[:, None]
    labels = _Labels(first.plain_s, first.plain_s, first.plain_s, exposed_s, exposed_s, rows)
    for stage, front in enumerate(fronts[1:], start=1):
        labels = _extend(labels, front, stage)
        if stage < len(fronts) - 1:
            labels = _prune(labels)
    m, p = microbatches, len(fronts)
    last_s = labels.sum_s + (m - 1) * labels.last_s
    steady_s = labels.sum_s - labels.first_s + (m + 1 - p) * labels.first_s
    first_s = m * labels.first_s
    late_s = np.maximum(last_s, steady_s) if p > 1 else first_s
    steps_s = np.maximum(late_s, first_s) + labels.exposed_s
    bounds_s = np.maximum(late_s + labels.exposed_s, first_s + labels.early_s)
    best = int(np.argmin(steps_s))
    return JoinedStep(float(steps_s[best]), labels.rows[best].tolist(), float(bounds_s.min()))


def _extend(labels: _Labels, front: ParetoFront, stage: int) -> _Labels:
    """Every label with every plan of the next stage."""
    old = np.repeat(np.arange(len(labels.sum_s)), len(front.plain_s))
    new = np.tile(np.arange(len(front.plain_s)), len(labels.sum_s))
    exposed_s = front.reduce_s[new] - labels.sum_s[old]
    early_s = labels.early_s[old]
    return _Labels(
        first_s=labels.first_s[old],
        sum_s=labels.sum_s[old] + front.plain_s[new],
        last_s=front.plain_s[new],
        exposed_s=np.maximum(labels.exposed_s[old], exposed_s),
        early_s=np.maximum(early_s, exposed_s) if stage == 1 else early_s,
        rows=np.column_stack([labels.rows[old], new]),
    )


def _prune(labels: _Labels) -> _Labels:
    """Drop dominated labels among those of one plan of the first stage."""
    first_rows = labels.rows[:, 0]
    order = np.lexsort((labels.early_s, labels.exposed_s, labels.sum_s, first_rows))
    kept, first, exposed_s, early_s = [], -1, np.inf, np.inf
    for row in order.tolist():
        if first_rows[row] != first:
            first, exposed_s, early_s = int(first_rows[row]), np.inf, np.inf
        if labels.exposed_s[row] < exposed_s or labels.early_s[row] < early_s:
            kept.append(row)
            exposed_s = min(exposed_s, labels.exposed_s[row])
            early_s = min(early_s, labels.early_s[row])
    return _Labels(
        labels.first_s[kept],
        labels.sum_s[kept],
        labels.last_s[kept],
        labels.exposed_s[kept],
        labels.early_s[kept],
        labels.rows[kept],
    )
