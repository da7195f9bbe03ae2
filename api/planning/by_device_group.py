"""Searching a cluster of several device groups: each by itself, then all of them together.

What a plan of one group costs does not depend on the others, so each group is searched alone; the
fastest of those plans is the mark that plans over several groups have to beat. Where groups lie in
several zones, each zone is searched so, then all of them together: a zone far off never makes the
answer worse. For other objectives than throughput groups are searched alone only, and the report
says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.errors import InfeasibleError
from ...spec.plan.plan import Plan
from ...spec.report.report import Alternative, Assumption, Report, SearchResult
from ..problem.resolve import Problem
from .heterogeneous import JointResult

JOINT_LEFT_OUT = {
    "what": "plans over several device groups",
    "why": "searched together for throughput only",
}
SearchPart = Callable[[Problem], Report]
SearchJoint = Callable[[float], JointResult]


def search_groups(
    problem: Problem, search_one: SearchPart, search_jointly: SearchJoint | None
) -> Report:
    """The best of the plans inside one part of a cluster and of those over several.

    Args:
        problem: whose cluster has several groups.
        search_one: searches a problem of one group, or of the groups of one zone.
        search_jointly: searches the groups together for plans faster than so many seconds; None
            where that is not asked for.

    Raises:
        InfeasibleError: nothing fits any part, nor all together; that of the first is told.
    """
    reports: dict[str, Report] = {}
    refused: list[InfeasibleError] = []
    for name, part in cluster_parts(problem.cluster).items():
        try:
            reports[name] = search_one(_on_cluster(problem, part))
        except InfeasibleError as error:
            refused.append(error)
    times_s = (report.prediction.step_time_s for report in reports.values())
    known_s = min(times_s, default=float("inf"))
    mixed = search_jointly(known_s) if search_jointly is not None else None
    if mixed is None or mixed.report is None:
        if not reports:
            raise refused[0]
        best = min(reports, key=lambda name: _objective_value(reports[name]))
        return _single_part_report(problem, best, reports, mixed)
    report = mixed.report
    if reports:
        best = min(reports, key=lambda name: _objective_value(reports[name]))
        rival = _alternative(problem, best, reports[best], report)
        report = replace(report, alternatives=(*report.alternatives, rival))
    return replace(report, search=_merged_search_result(None, reports, mixed))


def cluster_parts(cluster: ClusterSpec) -> dict[str, ClusterSpec]:
    """What of a cluster is searched by itself: its zones where there are several, or its groups."""
    if len(cluster.zones) > 1:
        return {zone: cluster.in_zone(zone) for zone in cluster.zones}
    return {group.name: cluster.alone(group.name) for group in cluster.groups}


def group_problems(problem: Problem) -> list[Problem]:
    """The problem on each of its device groups; the problem itself where it has one."""
    cluster = problem.cluster
    if len(cluster.groups) == 1:
        return [problem]
    return [_on_cluster(problem, cluster.alone(group.name)) for group in cluster.groups]


def _search_of(report: Report) -> SearchResult:
    if report.search is None:
        raise ValueError("a report of no search")
    return report.search


def _objective_value(report: Report) -> float:
    """What the objective makes of a report's plan, the less the better."""
    return _search_of(report).objective.value


def _on_cluster(problem: Problem, cluster: ClusterSpec) -> Problem:
    """The problem on a part of its cluster."""
    return replace(problem, cluster=cluster, machine=replace(problem.machine, cluster=cluster))


def _on_whole_cluster(problem: Problem, plan: Plan) -> Plan:
    """A plan of one part, written for the whole cluster."""
    return replace(plan, cluster=problem.cluster)


def _single_part_report(
    problem: Problem, best: str, reports: dict[str, Report], mixed: JointResult | None
) -> Report:
    """The best part's report, its plans written for the whole cluster."""
    report, each = reports[best], cluster_parts(problem.cluster)
    others = ", ".join(name for name in each if name != best)
    why = f"the best plan uses {best} only; {others} stay idle"
    # A zone's report may say already which of its own devices stay idle.
    own = sum(int(note.value) for note in report.assumptions if note.path == "idle_devices")
    idle = problem.cluster.device_count - each[best].device_count + own
    notes = tuple(note for note in report.assumptions if note.path != "idle_devices")
    alternatives = tuple(
        replace(other, plan=_on_whole_cluster(problem, other.plan)) for other in report.alternatives
    )
    plan = _on_whole_cluster(problem, report.plan)
    simplest = next((other.plan for other in alternatives if other.simplest), plan)
    search = _merged_search_result(report, reports, mixed)
    return replace(
        report,
        plan=plan,
        assumptions=(*notes, Assumption(path="idle_devices", value=idle, why=why)),
        search=replace(search, tie_set=replace(search.tie_set, simplest=simplest.hash)),
        alternatives=alternatives,
    )


def _alternative(problem: Problem, name: str, alone: Report, best: Report) -> Alternative:
    """The best plan of one part, beside a faster one over several."""
    share = alone.prediction.step_time_s / best.prediction.step_time_s - 1
    return Alternative(
        plan=_on_whole_cluster(problem, alone.plan),
        prediction=alone.prediction,
        lost_by=f"{share:+.1%}: {name} alone",
    )


def _merged_search_result(
    best: Report | None, reports: dict[str, Report], mixed: JointResult | None
) -> SearchResult:
    """What all searches did; the bound is the least of theirs.

    Args:
        best: the report of one part that answers; None where the mixed one does.
        reports: of the parts.
        mixed: the search of all parts together.
    """
    alone = [_search_of(report) for report in reports.values()]
    bounds = [search.objective.bound or 0.0 for search in alone]
    least_s = [search.lower_bound_s for search in alone]
    ended = [search.stopped_by for search in alone]
    seconds, candidates = (sum(s.seconds for s in alone), sum(s.candidates for s in alone))
    spaces, left_out = [s.space for s in alone], [each for s in alone for each in s.left_out]
    if mixed is None:
        left_out.insert(0, JOINT_LEFT_OUT)
    else:
        bounds.append(mixed.found.lower_bound)
        least_s.append(mixed.found.lower_bound_s)
        ended.append(mixed.found.stopped_by)
        seconds, candidates = seconds + mixed.found.seconds, candidates + mixed.found.simulated
        spaces, left_out = [*spaces, mixed.space], left_out + mixed.left_out
    objective = _search_of(best).objective if best else mixed.objective if mixed else None
    ties = _search_of(best).tie_set if best else mixed.tie_set if mixed else None
    if objective is None or ties is None:
        raise ValueError("no plan answers")
    bound = min(bounds)
    space: dict[str, list[Any]] = {}
    for each in spaces:
        for axis, values in each.items():
            space[axis] = sorted({*space.get(axis, []), *values})
    unfinished = [how for how in ended if how != "proof"]
    return SearchResult(
        seconds=round(seconds, 3),
        candidates=candidates,
        lower_bound_s=min(least_s),
        gap=objective.value / bound - 1 if bound else 0.0,
        stopped_by=unfinished[0] if unfinished else "proof",
        space=dict(sorted(space.items())),
        left_out=[each for n, each in enumerate(left_out) if each not in left_out[:n]],
        objective=replace(objective, bound=bound),
        tie_set=ties,
    )
