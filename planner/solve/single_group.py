"""The solution of a search over one device group."""

from __future__ import annotations

from ...costmodel.explain.breakdown import source_share
from ...spec.report.report import ObjectiveResult, SearchResult
from ..relaxation.lp_solver import has_solver
from ..search.branch_and_bound import BranchAndBound
from ..search.feasibility_probe import SearchParts
from ..search.result import SolveResult
from .advice import advice
from .alternatives import PlanRanking, alternatives, prediction_with_cost, ranking
from .options import SolveOptions
from .problem import Problem
from .sensitivities import winner_sensitivities
from .solution import Solution, idle_devices_notes, price_tables, pricing_text


def single_group_solution(
    problem: Problem, options: SolveOptions, parts: SearchParts, result: SolveResult
) -> Solution:
    """Solution of a finished search."""
    engine = parts.engine
    ranked = ranking(parts, result, options.simple_within)
    best = ranked.chosen
    return Solution(
        plan=best.plan,
        prediction=prediction_with_cost(best, engine, problem.prices),
        source_share=source_share(best.simulation),
        pricing=pricing_text(engine.evaluator.simulator.pricer),
        tables=price_tables(problem.measured),
        search=_search_result(problem, engine, result, ranked),
        alternatives=alternatives(ranked, options.top, problem.prices),
        sensitivities=winner_sensitivities(engine, best),
        advice=advice(problem, options, engine, [best, *ranked.outcomes], result.stopped_by),
        notes=idle_devices_notes(problem, best),
    )


def _search_result(
    problem: Problem, engine: BranchAndBound, result: SolveResult, ranked: PlanRanking
) -> SearchResult:
    """Bound, space, ranking and effort of a search."""
    value = engine.value(ranked.chosen)
    return SearchResult(
        seconds=round(result.seconds, 3),
        candidates=engine.evaluator.count,
        lower_bound_s=result.lower_bound_s,
        gap=value / result.lower_bound - 1 if result.lower_bound else 0.0,
        stopped_by=result.stopped_by,
        space=engine.space.describe(result.shapes),
        left_out=engine.space.left_out(has_solver()),
        objective=_objective_result(problem, value, result.lower_bound),
        tie_set=ranked.tie_set,
    )


def _objective_result(problem: Problem, value: float, bound: float) -> ObjectiveResult:
    name, tokens = problem.objective_choice.objective, problem.workload.tokens_per_step
    if name == "cost" and problem.prices is not None:
        unit = f"{problem.prices.currency} a token"
        return ObjectiveResult(name=name, unit=unit, value=value / tokens, bound=bound / tokens)
    return ObjectiveResult(name="throughput", unit="seconds a step", value=value, bound=bound)
