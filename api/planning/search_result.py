"""What a report tells of a search: its bound, its space, its objective, idle devices."""

from __future__ import annotations

from ...planner.candidates.evaluator import Outcome
from ...planner.search.branch_and_bound import BranchAndBound, SolveResult
from ...spec.report.report import Assumption, ObjectiveResult, SearchResult
from ..problem.lossy import lossy_notes
from ..problem.resolve import Problem
from .alternatives import PlanRanking


def idle_devices_note(problem: Problem, best: Outcome) -> tuple[Assumption, ...]:
    """The devices that a plan leaves idle, where there are any."""
    idle = problem.cluster.device_count - best.decision.shape.devices
    if not idle:
        return ()
    why = f"the best plan leaves {idle} of {problem.cluster.device_count} devices idle"
    return (Assumption(path="idle_devices", value=idle, why=why),)


def plan_notes(problem: Problem, best: Outcome) -> tuple[Assumption, ...]:
    """What an answer rests on: first what changes results, then what was assumed."""
    lossy = lossy_notes(best.plan, problem.techniques.values)
    return lossy + problem.assumptions + idle_devices_note(problem, best)


def search_result(
    search: BranchAndBound, found: SolveResult, ranking: PlanRanking, problem: Problem
) -> SearchResult:
    """How far a search got with what was asked of it.

    Args:
        search: that is done.
        found: by it.
        ranking: the plan that answers, and the others.
        problem: what was asked.
    """
    value = search.value(ranking.chosen)
    return SearchResult(
        seconds=round(found.seconds, 3),
        candidates=search.evaluator.count,
        lower_bound_s=found.lower_bound_s,
        gap=value / found.lower_bound - 1 if found.lower_bound else 0.0,
        stopped_by=found.stopped_by,
        space=search.space.describe(found.shapes),
        left_out=search.space.left_out(),
        objective=_objective_result(value, found.lower_bound, problem),
        tie_set=ranking.tie_set,
    )


def _objective_result(value: float, bound: float, problem: Problem) -> ObjectiveResult:
    """What was minimised, in its unit; the largest sizes are put in where they are known."""
    name, tokens = problem.objective_choice.objective, problem.workload.tokens_per_step
    if name == "cost" and problem.prices is not None:
        unit = f"{problem.prices.currency} a token"
        return ObjectiveResult(name=name, unit=unit, value=value / tokens, bound=bound / tokens)
    return ObjectiveResult(name="throughput", unit="seconds a step", value=value, bound=bound)
