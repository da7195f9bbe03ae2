"""Answers of smaller requests: the same question without some of its resources.

A plan that fits without host memory is a plan of the whole request too, but a search of the larger
space has more options to look at within the same work and may miss it. Where a search is not proven
it therefore also searches without that memory, under the same limits, and takes what it found as
incumbents: host memory then never makes an answer worse. Fewer devices are not tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.errors import InfeasibleError
from ..candidates.evaluator import Evaluator
from ..space.request import Request
from .incumbents import Incumbents
from .result import SolveResult
from .roles import Nodes

SmallerSearch = Callable[[Evaluator, float | None], tuple[SolveResult, bool]]
"""Search of a smaller request with a deadline in seconds; True if Ctrl-C ended it."""


class SmallerRequests:
    """Improvement by the plans of smaller requests.

    Args:
        evaluator: of the whole request.
        search: searches one of them.
        incumbents: take its plans.
        deadline_s: of the whole search.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        search: SmallerSearch,
        incumbents: Incumbents,
        deadline_s: float | None,
    ) -> None:
        self._evaluator = evaluator
        self._search = search
        self._incumbents = incumbents
        self._deadline_s = deadline_s

    def run(self, nodes: Nodes, done: set[int]) -> None:
        """Search smaller requests, and try their plans here."""
        for request in smaller_requests(self._evaluator.request):
            self._incumbents.check_deadline()
            try:
                result, interrupted = self._search(
                    self._evaluator.for_request(request), self._left_s()
                )
            except InfeasibleError:
                continue
            for outcome in result.outcomes:
                self._incumbents.try_layers(outcome.decision, keeps_schedule=True)
            if interrupted:
                raise KeyboardInterrupt

    def _left_s(self) -> float | None:
        if self._deadline_s is None:
            return None
        return max(0.0, self._deadline_s - (time.monotonic() - self._incumbents.start_s))


def smaller_requests(request: Request) -> Sequence[Request]:
    """The request without the memory of its hosts, if it has any."""
    cluster = request.cluster
    if not any(group.memory.host_bytes for group in cluster.groups):
        return ()
    return (replace(request, cluster=_without_hosts(cluster)),)


def _without_hosts(cluster: ClusterSpec) -> ClusterSpec:
    groups = (
        replace(group, memory=replace(group.memory, host_bytes=None)) for group in cluster.groups
    )
    return replace(cluster, groups=tuple(groups))
