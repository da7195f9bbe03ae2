"""Joint search over device groups, for plans faster than each part's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...costmodel.explain.breakdown import breakdown, predict, source_share
from ...spec.report.report import Alternative, ObjectiveResult, SearchResult, TieSet
from ..candidates.complexity import complexity
from ..candidates.evaluator import Outcome
from ..relaxation.lp_solver import has_solver
from ..search.branch_and_bound import BranchAndBound
from ..search.result import SolveResult
from .alternatives import TIE_WITHIN, alternative_outcomes, lost_text, simplest
from .engine import make_joint_engine
from .garbage_collection import garbage_collection_paused
from .options import SolveOptions
from .problem import Problem
from .program_search import (
    each_once,
    merged_space,
    no_legal_values,
    stop_of,
    with_program_values,
)
from .solution import Solution, idle_devices_notes, price_tables, pricing_text


@dataclass(frozen=True, slots=True, kw_only=True)
class JointResult:
    """Joint search, with its solution if better than each part."""

    solution: Solution | None
    result: SolveResult
    space: dict[str, list[Any]]
    left_out: list[dict[str, str]]


def searches_jointly(problem: Problem) -> bool:
    """True for throughput, and stacks whose stages may differ."""
    is_free = not problem.stack.limits.one_strategy
    return problem.objective_choice.objective == "throughput" and is_free


def solve_jointly(
    problem: Problem, options: SolveOptions, solutions: Mapping[str, Solution]
) -> JointResult | None:
    """Search all device groups jointly; None for other goals and uniform stacks.

    Args:
        problem: of several device groups.
        options: of this search.
        solutions: of the parts by name; only a faster plan counts.
    """
    if not searches_jointly(problem):
        return None
    times_s = (solution.prediction.step_time_s for solution in solutions.values())
    incumbent_s = min(times_s, default=float("inf"))
    with garbage_collection_paused():  # around the call, which lets go of the search at its end
        return _joint_result(problem, options, incumbent_s)


def _joint_result(problem: Problem, options: SolveOptions, incumbent_s: float) -> JointResult:
    """The search with each combination of the program's values, each to beat those before it.

    Where a simple plan is preferred, more values must gain more than that.
    """
    results: list[JointResult] = []
    for one in with_program_values(problem, options):
        margin = (options.simple_within or 0.0) if results and one.program else 0.0
        result = _searched(one, options, incumbent_s / (1 + margin))
        if result.solution is not None:
            incumbent_s = result.solution.prediction.step_time_s
        results.append(result)
    return results[0] if len(results) == 1 else _merged(results)


def _merged(results: list[JointResult]) -> JointResult:
    """The last solution, which is the best, and the least of all bounds."""
    if not results:
        raise no_legal_values()
    found = [one.result for one in results]
    return JointResult(
        solution=next((one.solution for one in reversed(results) if one.solution), None),
        result=replace(
            found[0],
            lower_bound=min(one.lower_bound for one in found),
            lower_bound_s=min(one.lower_bound_s for one in found),
            stopped_by=stop_of(found),
            simulated=sum(one.simulated for one in found),
            seconds=sum(one.seconds for one in found),
        ),
        space=merged_space(one.space for one in results),
        left_out=each_once(entry for one in results for entry in one.left_out),
    )


def _searched(problem: Problem, options: SolveOptions, incumbent_s: float) -> JointResult:
    engine = make_joint_engine(problem, options, incumbent_s)
    result = engine.run()
    left_out = engine.space.left_out(has_solver())
    space = engine.space.describe(result.shapes)
    solution = None
    if result.outcomes and result.outcomes[0].step_time_s < incumbent_s:
        solution = _solution(problem, options, engine, result, space, left_out)
    return JointResult(solution=solution, result=result, space=space, left_out=left_out)


def _solution(
    problem: Problem,
    options: SolveOptions,
    engine: BranchAndBound,
    result: SolveResult,
    space: dict[str, list[Any]],
    left_out: list[dict[str, str]],
) -> Solution:
    limit_s = result.outcomes[0].step_time_s * (1 + TIE_WITHIN)
    tied = [o for o in result.outcomes if o.step_time_s <= limit_s]
    simple = simplest(engine, tied)
    best = result.outcomes[0]
    if options.simple_within is not None:
        limit_s = best.step_time_s * (1 + options.simple_within)
        best = simplest(engine, [o for o in tied if o.step_time_s <= limit_s])
    simulator, rule = engine.evaluator.simulator, engine.evaluator.rule
    return Solution(
        plan=best.plan,
        prediction=predict(best.plan, best.simulation, simulator, rule),
        source_share=source_share(best.simulation),
        pricing=pricing_text(simulator.pricer),
        tables=price_tables(problem.measured),
        search=_search_result(result, best, _tie_set(tied, simple), space, left_out),
        alternatives=tuple(
            Alternative(
                plan=o.plan,
                prediction=predict(o.plan, o.simulation, simulator, rule),
                lost_by=lost_text(
                    o.step_time_s / best.step_time_s - 1,
                    breakdown(best.simulation),
                    breakdown(o.simulation),
                ),
                simplest=o is simple,
                fastest=o is result.outcomes[0],
            )
            for o in alternative_outcomes(result.outcomes, best, simple, options.top)
        ),
        notes=idle_devices_notes(problem, best),
    )


def _tie_set(tied: list[Outcome], simple: Outcome) -> TieSet:
    return TieSet(
        within=TIE_WITHIN,
        size=len(tied),
        simplest=simple.plan.hash,
        strategies=complexity(simple).strategies,
    )


def _search_result(
    result: SolveResult,
    best: Outcome,
    tie_set: TieSet,
    space: dict[str, list[Any]],
    left_out: list[dict[str, str]],
) -> SearchResult:
    """Bound, space, ranking and effort of the joint search alone."""
    value, bound = best.step_time_s, result.lower_bound_s
    return SearchResult(
        seconds=result.seconds,
        candidates=result.simulated,
        lower_bound_s=bound,
        gap=value / bound - 1 if bound else 0.0,
        stopped_by=result.stopped_by,
        space=space,
        left_out=left_out,
        objective=ObjectiveResult(
            name="throughput", unit="seconds a step", value=value, bound=bound
        ),
        tie_set=tie_set,
    )
