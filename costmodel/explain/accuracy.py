"""Accuracy of predictions: errors against measurements, and ranking of layouts.

Errors are predicted over measured, less one. Ranks are compared among layouts of one question
(model, machine, batch): Spearman's rank correlation (1904), ties at their mean rank, and regret of
the top pick: the measured slowdown of the layout predicted fastest against the one measured
fastest.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_LAYOUTS = 5
"""Groups with fewer layouts say nothing of order."""
Pair = tuple[float, float]
"""Predicted and measured, in any one unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors; None without pairs. ``signed_median`` keeps the sign."""

    median_ape: float | None
    mape: float | None
    p90_ape: float | None
    signed_median: float | None


def errors_of(pairs: Sequence[Pair]) -> Errors:
    """Median, mean and 90th percentile of |error|, and the signed median.

    The percentile is by nearest rank.
    """
    if not pairs:
        return Errors(median_ape=None, mape=None, p90_ape=None, signed_median=None)
    signed = [predicted / measured - 1 for predicted, measured in pairs]
    size = sorted(map(abs, signed))
    return Errors(
        median_ape=statistics.median(size),
        mape=statistics.fmean(size),
        p90_ape=size[math.ceil(0.9 * len(size)) - 1],
        signed_median=statistics.median(signed),
    )


def fitted_mfu(rows: Sequence[Pair]) -> float:
    """Median MFU of rows (seconds at an MFU of 1, measured seconds)."""
    return statistics.median(at_peak / measured for at_peak, measured in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Means over ``groups`` groups of layouts; None without a group."""

    spearman: float | None
    top1_regret: float | None
    groups: int


def ranking_of(groups: Sequence[Sequence[Pair]]) -> Ranking:
    """Ranking within groups of at least ``LEAST_LAYOUTS`` layouts."""
    large = [group for group in groups if len(group) >= LEAST_LAYOUTS]
    if not large:
        return Ranking(spearman=None, top1_regret=None, groups=0)
    return Ranking(
        spearman=statistics.fmean(map(spearman, large)),
        top1_regret=statistics.fmean(map(top1_regret, large)),
        groups=len(large),
    )


def top1_regret(group: Sequence[Pair]) -> float:
    """Measured slowdown of the layout predicted fastest against the measured fastest.

    The mean over layouts predicted equally fast.
    """
    least = min(predicted for predicted, _ in group)
    fastest = min(measured for _, measured in group)
    picked = [measured / fastest - 1 for predicted, measured in group if predicted == least]
    return statistics.fmean(picked)


def spearman(group: Sequence[Pair]) -> float:
    """Correlation of ranks, from -1 to 1; 0 for constant sides."""
    predicted, measured = ([pair[side] for pair in group] for side in (0, 1))
    if len(set(predicted)) == 1 or len(set(measured)) == 1:
        return 0.0
    return statistics.correlation(_ranks(predicted), _ranks(measured))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, ties at their mean."""
    order = sorted(values)
    ranks: dict[float, list[int]] = {}
    for rank, value in enumerate(order, start=1):
        ranks.setdefault(value, []).append(rank)
    return [statistics.fmean(ranks[value]) for value in values]
