"""Search over several device groups: the assembled engine.

Shapes of like stages with equal device shares are searched first, with the same effort as if
alone, so a plan is never slower than their best.
"""

from __future__ import annotations

from ..candidates.evaluator import Evaluator
from ..search.branch_and_bound import BranchAndBound
from ..search.enumeration import Enumeration
from ..search.incumbents import Incumbents
from ..search.proof import Improvements, Proof
from ..search.roles import Progress, SearchHeuristic
from ..search.work_limits import WorkSpent
from .enumeration import HeterogeneousPlans
from .layout_by_layout import HeterogeneousLayouts
from .likely_shapes import LikelyDeviceLayouts
from .nearby_shapes import NearbyShapes
from .search_space import is_uniform
from .shape_bounds import HeterogeneousBounds
from .shape_costs import HeterogeneousCosts
from .shape_explorer import ShapeExplorer
from .work_limits import HeterogeneousLimits


def heterogeneous_search(
    evaluator: Evaluator,
    limits: HeterogeneousLimits | None = None,
    progress: Progress | None = None,
    best_s: float = float("inf"),
    uniform_only: bool = False,
) -> BranchAndBound:
    """Search for the best plan over several device groups together.

    Its result is empty if no plan is faster than ``best_s`` or fits.

    Args:
        evaluator: of the request; simulates decisions once.
        limits: work limits.
        progress: called with (shapes seen, shapes in all, best seconds) now and then.
        best_s: step time of another plan, to be beaten.
        uniform_only: keep to stages of one width with equal device shares.
    """
    limits = limits or HeterogeneousLimits()
    progress = progress or (lambda seen, total, best: None)
    costs = HeterogeneousCosts(evaluator, uniform_only)
    incumbents = Incumbents(
        evaluator,
        costs.legality,
        costs.options.whole.gpipe_variant,
        alternatives=limits.alternatives,
        deadline_s=limits.deadline_s,
        best_value=best_s,
    )
    bounds, work = HeterogeneousBounds(costs), WorkSpent(evaluator)
    enumeration = Enumeration(
        lambda shape: HeterogeneousPlans(costs, shape),
        incumbents,
        work,
        limits.enumerated_shape,
        lambda: not costs.options.holds_ends,
    )
    layouts = HeterogeneousLayouts(
        costs.layer_classes, costs.stage_plan, evaluator.rule.excess_bytes
    )
    explorer = ShapeExplorer(costs, layouts, incumbents, progress)
    likely: tuple[SearchHeuristic, ...] = (LikelyDeviceLayouts(explorer, limits, is_uniform),)
    if not uniform_only:
        likely = (*likely, LikelyDeviceLayouts(explorer, limits))
    return BranchAndBound(
        space=costs.space,
        bounds=bounds,
        heuristics=(*likely, NearbyShapes(explorer, limits)),
        incumbents=incumbents,
        proof=Proof(
            bounds, enumeration, incumbents, lambda: limits.proof, Improvements(), progress
        ),
    )
