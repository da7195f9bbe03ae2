"""Minimum memory budget of any plan, for infeasibility messages."""

from __future__ import annotations

import math

from ...costmodel.galvatron.job import GalvatronJob, usable_mb
from .options import HeadStrategy, Legal, options_of
from .search import shapes_of
from .strategy_sets import StrategySet, strategy_sets_of


def least_budget_mb(job: GalvatronJob, legal: Legal) -> int | None:
    """Minimum MB of a device for some plan; None without any plan."""
    needs = [
        _needed_mb(strategies, ends)
        for microbatches, stages in shapes_of(job)
        for strategies in strategy_sets_of(job, options_of(job, microbatches, stages, legal))
        for ends in strategies.ends
    ]
    return _with_reserve(min(needs)) if needs else None


def _needed_mb(strategies: StrategySet, ends: HeadStrategy) -> int:
    return max(
        sum(run.layers * int(run.used_mb.min()) for run, _ in strategies.runs(stage, None))
        + ends_mb
        + strategies.buffer_mb
        for stage, ends_mb in enumerate(ends.used_mb)
    )


def _with_reserve(needed_mb: int) -> int:
    if usable_mb(needed_mb) >= needed_mb:
        return needed_mb
    budget = math.floor(needed_mb / 0.8)
    while usable_mb(budget) < needed_mb:
        budget += 1
    return budget
