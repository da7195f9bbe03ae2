"""Sensitivities of a searched plan: rates by simulating it again, memory by looking again."""

from __future__ import annotations

from dataclasses import replace

from ...costmodel.explain.sensitivity import CHANGE, sensitivities
from ...planner.candidates.evaluator import Outcome
from ...planner.search.branch_and_bound import BranchAndBound, Limits
from ...planner.search.feasibility_probe import SingleShapeSearch
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.report.report import Sensitivity

MAX_PASSES = 60_000
"""Longer steps are not simulated again for it; ``plan explain`` still does."""
MEMORY_RESOURCE = "device.hbm"


def winner_sensitivities(search: BranchAndBound, best: Outcome) -> tuple[Sensitivity, ...]:
    """What one per cent more of each resource does to the best plan's step.

    More memory changes no plan's time: there the winner's shape is looked into again with and
    without it, so that what is recomputed or sharded for want of memory counts.

    Args:
        search: that found the plan.
        best: the plan.

    Returns:
        None of them where the search was interrupted, or a step takes long to simulate.
    """
    if best.decision.shape.passes > MAX_PASSES:
        return ()
    if search.interrupted:
        return ()
    simulator = search.evaluator.simulator
    try:
        found = sensitivities(best.plan, simulator, best.step_time_s)
        return (*found, _memory_sensitivity(search, best))
    except KeyboardInterrupt:  # an answer is there; this is no part of it
        search.interrupted = True
        return ()


def _memory_sensitivity(search: BranchAndBound, best: Outcome) -> Sensitivity:
    evaluator = search.evaluator
    request = replace(evaluator.request, cluster=_with_more_memory(evaluator.request.cluster))
    found = []
    for for_request in (evaluator.request, request):
        again = SingleShapeSearch(evaluator.for_request(for_request), Limits())
        found.append(again.seconds_within(best.decision.shape))
    was_s = min([best.step_time_s, *found[0]])
    change = min([was_s, *found[1]]) / was_s - 1
    return Sensitivity(resource=MEMORY_RESOURCE, change=CHANGE, step_time_change=change)


def _with_more_memory(cluster: ClusterSpec) -> ClusterSpec:
    groups = tuple(
        replace(g, memory=replace(g.memory, hbm_bytes=int(g.memory.hbm_bytes * (1 + CHANGE))))
        for g in cluster.groups
    )
    return replace(cluster, groups=groups)
