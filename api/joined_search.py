"""Searching a cluster of several device groups: each by itself, then all of them together.

What a plan of one group costs does not depend on the others, so each group is searched alone; the
fastest of those plans is the mark that plans over several groups have to beat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..costmodel.machine import Machine
from ..spec.errors import InfeasibleError
from ..spec.plan import Plan
from ..spec.report import Alternative, Assumption, Report, SearchResult
from .inputs import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """What was found over several groups: a report where that is faster, the search in any case."""

    report: Report | None
    search: SearchResult


SearchOne = Callable[[Problem], Report]
SearchMixed = Callable[[float], Mixed]


def search_groups(problem: Problem, search_one: SearchOne, search_mixed: SearchMixed) -> Report:
    """The fastest of the plans inside one device group and of those over several.

    Args:
        problem: whose cluster has several groups.
        search_one: searches a problem of one group.
        search_mixed: searches the groups together for plans faster than so many seconds.

    Raises:
        InfeasibleError: nothing fits any group, nor all together; that of the first is told.
    """
    reports: dict[str, Report] = {}
    refused: list[InfeasibleError] = []
    for group in problem.cluster.groups:
        try:
            reports[group.name] = search_one(_alone(problem, group.name))
        except InfeasibleError as error:
            refused.append(error)
    times_s = {name: report.prediction.step_time_s for name, report in reports.items()}
    mixed = search_mixed(min(times_s.values(), default=float("inf")))
    report = mixed.report
    if not times_s:
        if report is None:
            raise refused[0]
    else:
        best = min(times_s, key=lambda name: times_s[name])
        if report is None:
            report = _of_one(problem, best, reports[best])
        else:
            rival = _alternative(problem, best, reports[best], report)
            report = replace(report, alternatives=(*report.alternatives, rival))
    return replace(report, search=_together(report, reports, mixed.search))


def _alone(problem: Problem, name: str) -> Problem:
    """The problem on one of its groups."""
    cluster = problem.cluster.alone(name)
    return replace(problem, cluster=cluster, machine=Machine(cluster, problem.measured))


def _whole(problem: Problem, plan: Plan) -> Plan:
    """A plan of one group, written for the whole cluster."""
    return replace(plan, cluster=problem.cluster)


def _of_one(problem: Problem, best: str, report: Report) -> Report:
    """The report of the best group's own search."""
    others = ", ".join(group.name for group in problem.cluster.groups if group.name != best)
    why = f"the fastest plan uses {best} only; {others} stay idle"
    idle = problem.cluster.device_count - problem.cluster.group(best).device_count
    alternatives = tuple(
        replace(other, plan=_whole(problem, other.plan)) for other in report.alternatives
    )
    return replace(
        report,
        plan=_whole(problem, report.plan),
        assumptions=(*report.assumptions, Assumption(path="idle_devices", value=idle, why=why)),
        alternatives=alternatives,
    )


def _alternative(problem: Problem, name: str, alone: Report, best: Report) -> Alternative:
    """The best plan of one group, beside a faster one over several."""
    share = alone.prediction.step_time_s / best.prediction.step_time_s - 1
    return Alternative(
        plan=_whole(problem, alone.plan),
        prediction=alone.prediction,
        lost_by=f"+{share:.1%}: {name} alone",
    )


def _together(best: Report, reports: dict[str, Report], mixed: SearchResult) -> SearchResult:
    """What all searches did; the bound is the least of theirs."""
    found = [*(r.search for r in reports.values() if r.search is not None), mixed]
    least_s = min(search.lower_bound_s for search in found)
    unfinished = [search.stopped_by for search in found if search.stopped_by != "proof"]
    space: dict[str, list[Any]] = {}
    left_out: list[dict[str, str]] = []
    for search in found:
        for axis, values in search.space.items():
            space[axis] = sorted({*space.get(axis, []), *values})
        left_out += [each for each in search.left_out if each not in left_out]
    return SearchResult(
        seconds=round(sum(search.seconds for search in found), 3),
        candidates=sum(search.candidates for search in found),
        lower_bound_s=least_s,
        gap=best.prediction.step_time_s / least_s - 1 if least_s else 0.0,
        stopped_by=unfinished[0] if unfinished else "proof",
        space=dict(sorted(space.items())),
        left_out=left_out,
    )
