"""Searching a cluster of several device groups: each group by itself, the fastest plan of all.

A plan keeps to one group, so what it costs does not depend on the others; that no plan crosses
groups is listed as left out, and the bound speaks of the plans that were searched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..spec.errors import InfeasibleError
from ..spec.plan import Plan
from ..spec.report import Alternative, Assumption, Report, SearchResult
from .inputs import Problem

LEFT_OUT = {
    "what": "plans over several device groups",
    "why": "not searched yet; place stages with plan simulate --pp, or write the plan",
}
SearchOne = Callable[[Problem], Report]


def search_groups(problem: Problem, search_one: SearchOne) -> Report:
    """The fastest of the plans that stay inside one device group.

    Args:
        problem: whose cluster has several groups.
        search_one: searches a problem of one group.

    Raises:
        InfeasibleError: nothing fits any group; that of the first is told.
    """
    reports: dict[str, Report] = {}
    refused: list[InfeasibleError] = []
    for group in problem.cluster.groups:
        try:
            reports[group.name] = search_one(_alone(problem, group.name))
        except InfeasibleError as error:
            refused.append(error)
    if not reports:
        raise refused[0]
    best = min(reports, key=lambda name: _value(reports[name]))
    return _joined(problem, best, reports)


def alone_problems(problem: Problem) -> list[Problem]:
    """The problem on each of its device groups; the problem itself where it has one."""
    if len(problem.cluster.groups) == 1:
        return [problem]
    return [_alone(problem, group.name) for group in problem.cluster.groups]


def _value(report: Report) -> float:
    """What the objective makes of a report's plan, the less the better."""
    if report.search is None:
        raise ValueError("a report of no search")
    return report.search.objective.value


def _alone(problem: Problem, name: str) -> Problem:
    """The problem on one of its groups."""
    cluster = problem.cluster.alone(name)
    return replace(problem, cluster=cluster, machine=replace(problem.machine, cluster=cluster))


def _joined(problem: Problem, best: str, reports: dict[str, Report]) -> Report:
    """The best group's report, its plans written for the whole cluster."""

    def whole(plan: Plan) -> Plan:
        return replace(plan, cluster=problem.cluster)

    report = reports[best]
    others = ", ".join(group.name for group in problem.cluster.groups if group.name != best)
    why = f"the best plan uses {best} only; {others} stay idle"
    idle = problem.cluster.device_count - problem.cluster.group(best).device_count
    alternatives = tuple(replace(other, plan=whole(other.plan)) for other in report.alternatives)
    return replace(
        report,
        plan=whole(report.plan),
        assumptions=(*report.assumptions, Assumption(path="idle_devices", value=idle, why=why)),
        search=_with_simplest(_together(report, reports), whole(report.plan), alternatives),
        alternatives=alternatives,
    )


def _with_simplest(
    search: SearchResult | None, plan: Plan, alternatives: tuple[Alternative, ...]
) -> SearchResult | None:
    """The search with the hash that its simplest plan has when written for the whole cluster."""
    if search is None:
        return None
    simplest = next((other.plan for other in alternatives if other.simplest), plan)
    return replace(search, tie_set=replace(search.tie_set, simplest=simplest.hash))


def _together(best: Report, reports: dict[str, Report]) -> SearchResult | None:
    """What all searches did; the bound is the least of theirs."""
    found = [report.search for report in reports.values() if report.search is not None]
    if best.search is None:
        return None
    least_s = min(search.lower_bound_s for search in found)
    bound = min(search.objective.bound or 0.0 for search in found)
    unfinished = [search.stopped_by for search in found if search.stopped_by != "proof"]
    return replace(
        best.search,
        seconds=round(sum(search.seconds for search in found), 3),
        candidates=sum(search.candidates for search in found),
        lower_bound_s=least_s,
        gap=best.search.objective.value / bound - 1 if bound else 0.0,
        objective=replace(best.search.objective, bound=bound),
        stopped_by=unfinished[0] if unfinished else "proof",
        left_out=[LEFT_OUT, *best.search.left_out],
    )
