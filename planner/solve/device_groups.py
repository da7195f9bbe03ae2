"""Clusters of several device groups: their parts, and the merged solution.

A plan's cost in one group does not depend on the others, so each group is searched alone; the
fastest plan is the incumbent of the joint search. With several zones, each zone is searched so,
then all together: a distant zone never worsens the answer. For objectives other than throughput
groups are searched alone only, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.plan.plan import Plan
from ...spec.report.report import Alternative, Assumption, SearchResult
from .joint_search import JointResult
from .problem import Problem
from .program_search import each_once, merged_space
from .solution import IDLE_DEVICES, Solution

JOINT_LEFT_OUT = {
    "what": "plans over several device groups",
    "why": "searched together for throughput only, and for stacks whose stages may differ",
}


def cluster_parts(cluster: ClusterSpec) -> dict[str, ClusterSpec]:
    """Parts searched alone: zones if there are several, else groups."""
    if len(cluster.zones) > 1:
        return {zone: cluster.in_zone(zone) for zone in cluster.zones}
    return {group.name: cluster.alone(group.name) for group in cluster.groups}


def group_problems(problem: Problem) -> list[Problem]:
    """Problem on each of its device groups; itself if it has one."""
    cluster = problem.cluster
    if len(cluster.groups) == 1:
        return [problem]
    return [problem.on_cluster(cluster.alone(group.name)) for group in cluster.groups]


def merged_solution(
    problem: Problem, solutions: Mapping[str, Solution], joint: JointResult | None
) -> Solution:
    """Best of the solutions of the parts and of all together.

    Args:
        problem: of several device groups.
        solutions: of the parts by name; empty only if the joint search has a solution.
        joint: the joint search; None if there was none.
    """
    best = min(solutions, key=lambda name: solutions[name].objective_value, default="")
    if joint is None or joint.solution is None:
        return _single_part_solution(problem, best, solutions, joint)
    solution = joint.solution
    if best:
        alternative = _part_alternative(problem, best, solutions[best], solution)
        solution = replace(solution, alternatives=(*solution.alternatives, alternative))
    return replace(solution, search=_merged_search(solution.search, solutions, joint))


def _on_whole_cluster(problem: Problem, plan: Plan) -> Plan:
    return replace(plan, cluster=problem.cluster)


def _single_part_solution(
    problem: Problem, best: str, solutions: Mapping[str, Solution], joint: JointResult | None
) -> Solution:
    """Best part's solution, its plans written for the whole cluster."""
    solution, parts = solutions[best], cluster_parts(problem.cluster)
    others = ", ".join(name for name in parts if name != best)
    why = f"the best plan uses {best} only; {others} stay idle"
    # The solution of a zone may say already which of its own devices stay idle.
    idle_inside = sum(int(note.value) for note in solution.notes if note.path == IDLE_DEVICES)
    idle = problem.cluster.device_count - parts[best].device_count + idle_inside
    notes = tuple(note for note in solution.notes if note.path != IDLE_DEVICES)
    alternatives = tuple(
        replace(other, plan=_on_whole_cluster(problem, other.plan))
        for other in solution.alternatives
    )
    plan = _on_whole_cluster(problem, solution.plan)
    simplest = next((other.plan for other in alternatives if other.simplest), plan)
    search = _merged_search(solution.search, solutions, joint)
    return replace(
        solution,
        plan=plan,
        notes=(*notes, Assumption(path=IDLE_DEVICES, value=idle, why=why)),
        search=replace(search, tie_set=replace(search.tie_set, simplest=simplest.hash)),
        alternatives=alternatives,
    )


def _part_alternative(problem: Problem, name: str, alone: Solution, best: Solution) -> Alternative:
    share = alone.prediction.step_time_s / best.prediction.step_time_s - 1
    return Alternative(
        plan=_on_whole_cluster(problem, alone.plan),
        prediction=alone.prediction,
        lost_by=f"{share:+.1%}: {name} alone",
    )


def _merged_search(
    best: SearchResult, solutions: Mapping[str, Solution], joint: JointResult | None
) -> SearchResult:
    """All searches as one, with their minimum bound."""
    searches = [solution.search for solution in solutions.values()]
    bounds = [search.objective.bound or 0.0 for search in searches]
    bounds_s = [search.lower_bound_s for search in searches]
    stops = [search.stopped_by for search in searches]
    seconds, candidates = sum(s.seconds for s in searches), sum(s.candidates for s in searches)
    spaces, left_out = (
        [s.space for s in searches],
        [entry for s in searches for entry in s.left_out],
    )
    if joint is None:
        left_out.insert(0, JOINT_LEFT_OUT)
    else:
        bounds.append(joint.result.lower_bound)
        bounds_s.append(joint.result.lower_bound_s)
        stops.append(joint.result.stopped_by)
        seconds, candidates = seconds + joint.result.seconds, candidates + joint.result.simulated
        spaces, left_out = [*spaces, joint.space], left_out + joint.left_out
    bound = min(bounds)
    return SearchResult(
        seconds=round(seconds, 3),
        candidates=candidates,
        lower_bound_s=min(bounds_s),
        gap=best.objective.value / bound - 1 if bound else 0.0,
        stopped_by=next((stop for stop in stops if stop != "proof"), "proof"),
        space=merged_space(spaces),
        left_out=each_once(left_out),
        objective=replace(best.objective, bound=bound),
        tie_set=best.tie_set,
    )
