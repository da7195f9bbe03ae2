"""Parts of the search that a request's stack needs."""

from __future__ import annotations

from ..candidates.evaluator import Evaluator
from ..search.build import SingleGroupParts
from ..search.feasibility_probe import SearchParts
from ..search.roles import Progress
from ..search.work_limits import Limits
from ..uniform.build import UniformParts


def search_parts(
    evaluator: Evaluator, limits: Limits, progress: Progress | None = None
) -> SearchParts:
    """Search over one device group: of uniform plans where the stack runs no others."""
    if evaluator.request.stack.limits.one_strategy:
        return UniformParts(evaluator, limits, progress)
    return SingleGroupParts(evaluator, limits, progress)
