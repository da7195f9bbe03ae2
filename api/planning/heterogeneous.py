"""One search over several device groups together: its report where it beats each group alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...costmodel.explain.breakdown import breakdown, predict, source_share
from ...planner.heterogeneous.branch_and_bound import HeterogeneousSearch
from ...planner.search.branch_and_bound import SolveResult
from ...planner.search.tie_set import complexity
from ...spec.report.report import Alternative, ObjectiveResult, Provenance, Report, TieSet
from ..problem.resolve import Problem
from .alternatives import TIE_WITHIN, alternative_outcomes, lost_text
from .search_result import plan_notes


@dataclass(frozen=True, slots=True, kw_only=True)
class JointResult:
    """What was found over several groups: a report where that is faster, the search in any case."""

    report: Report | None
    tie_set: TieSet | None
    found: SolveResult
    space: dict[str, list[Any]]
    left_out: list[dict[str, str]]

    @property
    def objective(self) -> ObjectiveResult | None:
        """What was minimised, where that is faster than each group alone."""
        if self.report is None:
            return None
        value, bound = self.report.prediction.step_time_s, self.found.lower_bound_s
        unit = "seconds a step"
        return ObjectiveResult(name="throughput", unit=unit, value=value, bound=bound)


def search_heterogeneous(
    problem: Problem, search: HeterogeneousSearch, provenance: Provenance, top: int, simple: bool
) -> JointResult:
    """The best plan over several device groups, where it is faster than what is known.

    Args:
        problem: what was asked.
        search: of it; knows the time that is to be beaten.
        provenance: of the prices.
        top: how many other plans are told of.
        simple: whether the simplest plan that ties with the best is wanted.
    """
    known_s = search.best_s
    found = search.run()
    left_out = search.space.left_out()
    empty = JointResult(
        report=None,
        tie_set=None,
        found=found,
        space=search.space.describe(found.shapes),
        left_out=left_out,
    )
    if not found.outcomes or found.outcomes[0].step_time_s >= known_s:
        return empty
    limit_s = found.outcomes[0].step_time_s * (1 + TIE_WITHIN)
    tied = [o for o in found.outcomes if o.step_time_s <= limit_s]
    simplest = min(tied, key=complexity)
    best = simplest if simple else found.outcomes[0]
    simulator, rule = search.evaluator.simulator, search.evaluator.rule
    report = Report(
        plan=best.plan,
        prediction=predict(best.plan, best.simulation, simulator, rule),
        assumptions=plan_notes(problem, best),
        source_share=source_share(best.simulation),
        provenance=provenance,
        alternatives=tuple(
            Alternative(
                plan=o.plan,
                prediction=predict(o.plan, o.simulation, simulator, rule),
                lost_by=lost_text(
                    o.step_time_s / best.step_time_s - 1,
                    breakdown(best.simulation),
                    breakdown(o.simulation),
                ),
                simplest=o is simplest,
            )
            for o in alternative_outcomes(found.outcomes, best, simplest, top)
        ),
    )
    ties = TieSet(
        within=TIE_WITHIN,
        size=len(tied),
        simplest=simplest.plan.hash,
        strategies=simplest.distinct_strategies,
    )
    return replace(empty, report=report, tie_set=ties)
