"""The exact search: corners by growing bound, each solved, until the next bound passes the best.

A corner is a number of micro-batches and stages, a largest degree with or without tensor
parallelism, and a strategy of embedding and head. Its bound is the relaxed knapsack of every
stage under every linear form of the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ...costmodel.galvatron.job import GalvatronJob, usable_mb
from ...costmodel.galvatron.plan_cost import GalvatronCost, GalvatronPlan, plan_cost
from ...spec.numbers import divisors
from .options import Legal, StrategyOptions, always_legal, degrees_of, options_of
from .stage_dp import ROUNDING
from .strategy_sets import strategy_sets_of
from .subproblem import Subproblem, SubproblemSolution

GLANCE_LABELS = 24
"""Labels kept when a corner is first looked into, for a good plan soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronResult:
    """The best plan and what is proven of it; ``rivals`` are the best of other shapes."""

    plan: GalvatronPlan
    price: GalvatronCost
    lower_bound_s: float
    corners: int
    solved: int
    seconds: float
    stopped_by: Literal["proof", "work", "deadline"]
    rivals: tuple[tuple[GalvatronPlan, GalvatronCost], ...]


def shapes_of(job: GalvatronJob) -> list[tuple[int, int]]:
    """(micro-batches, stages) of the space: never more stages than micro-batches or layers."""
    between, layers = job.profile.machine.p2p, sum(job.layers)
    stages = [p for p in degrees_of(job) if p <= layers and (p == 1 or p in between)]
    return [(m, p) for m in divisors(job.global_batch) for p in stages if p <= m]


def search(
    job: GalvatronJob,
    budget_mb: int,
    legal: Legal = always_legal,
    is_late: Callable[[], bool] = lambda: False,
) -> GalvatronResult | None:
    """The fastest plan within a budget; None where nothing fits.

    Args:
        job: the question.
        budget_mb: MB of a device, of which a part may be withheld.
        legal: whether layers, or embedding and head, may be split so.
        is_late: whether to stop with what is known.

    Raises:
        InputError: the profile lacks a figure.
    """
    start_s = time.monotonic()
    usable = usable_mb(budget_mb)
    corners = sorted(
        (c for options in _options(job, legal) for c in _corners(job, options, usable)),
        key=lambda corner: corner.bound_s,
    )
    known: dict[tuple[int, int], SubproblemSolution] = {}
    best_s, bound_s, solved, late = float("inf"), float("inf"), 0, False
    for corner in corners:
        if corner.bound_s >= best_s * (1 - ROUNDING) or corner.bound_s == float("inf"):
            break
        if known and is_late():
            late, bound_s = True, min(bound_s, corner.bound_s)
            break
        solved += 1
        for most in (GLANCE_LABELS, None):
            answer = corner.solve(best_s, most)
            if answer is None:
                continue
            if most is None:
                bound_s = min(bound_s, answer.bound_s)
            if answer.step_s < best_s:
                best_s = answer.step_s
                known[answer.plan.microbatches, len(answer.plan.division)] = answer
    if not known:
        return None
    best, *others = sorted(known.values(), key=lambda answer: answer.step_s)
    price = plan_cost(job, best.plan)
    lower = min(bound_s, price.step_s)
    proven = lower >= price.step_s * (1 - ROUNDING)
    return GalvatronResult(
        plan=best.plan,
        price=price,
        lower_bound_s=price.step_s if proven else lower,
        corners=len(corners),
        solved=solved,
        seconds=time.monotonic() - start_s,
        stopped_by="deadline" if late else "proof" if proven else "work",
        rivals=tuple((other.plan, plan_cost(job, other.plan)) for other in others),
    )


def _options(job: GalvatronJob, legal: Legal) -> Iterator[StrategyOptions]:
    for microbatches, stages in shapes_of(job):
        options = options_of(job, microbatches, stages, legal)
        if options.strategies and options.ends:
            yield options


def _corners(job: GalvatronJob, options: StrategyOptions, usable: int) -> Iterator[Subproblem]:
    for field in strategy_sets_of(job, options):
        for ends in field.ends:
            yield Subproblem(field, ends, usable)
