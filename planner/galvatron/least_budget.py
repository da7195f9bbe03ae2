"""The smallest budget that any plan fits, for those whose budget none does."""

from __future__ import annotations

import math

from ...costmodel.galvatron.job import GalvatronJob, usable_mb
from .options import HeadStrategy, Legal, options_of
from .search import shapes_of
from .strategy_sets import StrategySet, strategy_sets_of


def least_budget_mb(job: GalvatronJob, legal: Legal) -> int | None:
    """MB of a device that some plan fits, at least; None where there is no plan.

    Args:
        job: the question.
        legal: whether layers, or embedding and head, may be split so.
    """
    needs = [
        _needed_mb(field, ends)
        for microbatches, stages in shapes_of(job)
        for field in strategy_sets_of(job, options_of(job, microbatches, stages, legal))
        for ends in field.ends
    ]
    return _with_reserve(min(needs)) if needs else None


def _needed_mb(field: StrategySet, ends: HeadStrategy) -> int:
    """The MB of the fullest stage with every layer at its smallest."""
    return max(
        sum(run.layers * int(run.used_mb.min()) for run, _ in field.runs(stage, None))
        + own
        + field.buffer_mb
        for stage, own in enumerate(ends.used_mb)
    )


def _with_reserve(needed_mb: int) -> int:
    """The smallest budget of which so much is left."""
    if usable_mb(needed_mb) >= needed_mb:
        return needed_mb
    budget = math.floor(needed_mb / 0.8)
    while usable_mb(budget) < needed_mb:
        budget += 1
    return budget
