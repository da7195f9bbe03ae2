"""Exact best-first search: subproblems by growing bound, up to the incumbent.

A subproblem is a pair of micro-batches and stages, a largest degree with or without tensor
parallelism, and a strategy of embedding and head. Its bound is the relaxed knapsack of every stage
under every linear form of the step.
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
"""Labels kept at the first, heuristic solution of a subproblem, for an early incumbent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalvatronResult:
    """Best plan with its proven bound; ``rivals``: the best of other shapes.

    ``corners``: number of subproblems.
    """

    plan: GalvatronPlan
    price: GalvatronCost
    lower_bound_s: float
    corners: int
    solved: int
    seconds: float
    stopped_by: Literal["proof", "work", "deadline"]
    rivals: tuple[tuple[GalvatronPlan, GalvatronCost], ...]


def shapes_of(job: GalvatronJob) -> list[tuple[int, int]]:
    """(micro-batches, stages) of the space: stages at most micro-batches and layers."""
    between, layers = job.profile.machine.p2p, sum(job.layers)
    stages = [p for p in degrees_of(job) if p <= layers and (p == 1 or p in between)]
    return [(m, p) for m in divisors(job.global_batch) for p in stages if p <= m]


def search(
    job: GalvatronJob,
    budget_mb: int,
    legal: Legal = always_legal,
    is_late: Callable[[], bool] = lambda: False,
) -> GalvatronResult | None:
    """Fastest plan within a budget; None if nothing fits.

    Args:
        job: the question.
        budget_mb: MB of a device, part of it withheld.
        legal: legality of a strategy of layers, or of embedding and head.
        is_late: True to stop with the incumbent.

    Raises:
        InputError: the profile lacks a figure.
    """
    start_s = time.monotonic()
    usable = usable_mb(budget_mb)
    subproblems = sorted(
        (s for options in _options(job, legal) for s in _subproblems(job, options, usable)),
        key=lambda subproblem: subproblem.bound_s,
    )
    by_shape: dict[tuple[int, int], SubproblemSolution] = {}
    best_s, bound_s, solved, late = float("inf"), float("inf"), 0, False
    for subproblem in subproblems:
        if subproblem.bound_s >= best_s * (1 - ROUNDING) or subproblem.bound_s == float("inf"):
            break
        if by_shape and is_late():
            late, bound_s = True, min(bound_s, subproblem.bound_s)
            break
        solved += 1
        for most in (GLANCE_LABELS, None):
            solution = subproblem.solve(best_s, most)
            if solution is None:
                continue
            if most is None:
                bound_s = min(bound_s, solution.bound_s)
            if solution.step_s < best_s:
                best_s = solution.step_s
                by_shape[solution.plan.microbatches, len(solution.plan.division)] = solution
    if not by_shape:
        return None
    best, *others = sorted(by_shape.values(), key=lambda solution: solution.step_s)
    price = plan_cost(job, best.plan)
    lower = min(bound_s, price.step_s)
    proven = lower >= price.step_s * (1 - ROUNDING)
    return GalvatronResult(
        plan=best.plan,
        price=price,
        lower_bound_s=price.step_s if proven else lower,
        corners=len(subproblems),
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


def _subproblems(
    job: GalvatronJob, options: StrategyOptions, usable_mb: int
) -> Iterator[Subproblem]:
    for strategies in strategy_sets_of(job, options):
        for ends in strategies.ends:
            yield Subproblem(strategies, ends, usable_mb)
