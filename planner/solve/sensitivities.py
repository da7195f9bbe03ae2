"""Sensitivities of the best plan: rates by simulation, memory by search."""

from __future__ import annotations

from dataclasses import replace

from ...costmodel.explain.sensitivity import CHANGE, sensitivities
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.report.report import Sensitivity
from ..candidates.evaluator import Outcome
from ..search.branch_and_bound import BranchAndBound
from ..search.feasibility_probe import SingleShapeSearch
from ..search.work_limits import Limits
from ..uniform.build import search_parts

MAX_PASSES = 60_000
"""Passes of a step above which there are no sensitivities; ``plan explain`` has them still."""
MEMORY_RESOURCE = "device.hbm"


def winner_sensitivities(search: BranchAndBound, best: Outcome) -> tuple[Sensitivity, ...]:
    """Changes of the best step per one per cent of each resource.

    More memory changes no plan's time: its shape is searched again with and without it, so that
    layers recomputed or sharded for want of memory count.

    Returns:
        Nothing if the search was interrupted, or a step takes long to simulate.
    """
    if best.decision.shape.passes > MAX_PASSES:
        return ()
    if search.interrupted:
        return ()
    simulator = search.evaluator.simulator
    try:
        rates = sensitivities(best.plan, simulator, best.step_time_s)
        return (*rates, _memory_sensitivity(search, best))
    except KeyboardInterrupt:  # the answer is there without them
        search.interrupted = True
        return ()


def _memory_sensitivity(search: BranchAndBound, best: Outcome) -> Sensitivity:
    evaluator = search.evaluator
    request = replace(evaluator.request, cluster=_with_more_memory(evaluator.request.cluster))
    times_s = []
    for for_request in (evaluator.request, request):
        search_again = SingleShapeSearch(search_parts(evaluator.for_request(for_request), Limits()))
        times_s.append(search_again.seconds_within(best.decision.shape))
    before_s = min([best.step_time_s, *times_s[0]])
    change = min([before_s, *times_s[1]]) / before_s - 1
    return Sensitivity(resource=MEMORY_RESOURCE, change=CHANGE, step_time_change=change)


def _with_more_memory(cluster: ClusterSpec) -> ClusterSpec:
    groups = tuple(
        replace(g, memory=replace(g.memory, hbm_bytes=int(g.memory.hbm_bytes * (1 + CHANGE))))
        for g in cluster.groups
    )
    return replace(cluster, groups=groups)
