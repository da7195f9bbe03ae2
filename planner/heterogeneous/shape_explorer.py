"""Estimates and searches of single shapes over several device groups."""

from __future__ import annotations

from ..heuristics.heuristic import Heuristic
from ..search.incumbents import Incumbents
from ..search.roles import Nodes, Progress
from ..space.pipeline_shape import PipelineShape
from .shape_costs import HeterogeneousCosts
from .step_estimates import StepEstimates

ESTIMATE_WITHIN = 1.3
"""Shapes whose estimate is worse than the best time by this factor are not searched."""


class ShapeExplorer:
    """Estimates and searches of chosen shapes.

    ``searched``: numbers of the shapes searched.
    """

    def __init__(
        self,
        costs: HeterogeneousCosts,
        layouts: Heuristic,
        incumbents: Incumbents,
        progress: Progress,
    ) -> None:
        self.incumbents = incumbents
        self._costs = costs
        self._layouts = layouts
        self._progress = progress
        self._estimates = StepEstimates(costs.layer_classes)
        self.searched: set[int] = set()

    def rough_s(self, nodes: Nodes, number: int) -> float:
        """Step time for ranking: the proven bound and the schedule's bubble."""
        shape, bound_s = nodes.shapes[number], nodes.quick[number]
        if shape.fills_and_drains:
            return bound_s
        bubble = (shape.stages - 1) / (shape.chunks * shape.microbatches)
        return bound_s * (1 + bubble)

    def estimate_s(self, shape: PipelineShape) -> float | None:
        """Likely step time; None if a layer has no options."""
        self.incumbents.check_deadline()
        plan = self._costs.stage_plan(shape)
        return None if plan is None else self._estimates.step_s(shape, *plan)

    def search(self, nodes: Nodes, number: int) -> bool:
        """Try good plans; False if a layer has no options."""
        self.incumbents.check_deadline()
        shape = nodes.shapes[number]
        if self._costs.stage_plan(shape) is None:
            return False
        self.searched.add(number)
        self._progress(len(self.searched), len(nodes.shapes), self.incumbents.best_value)
        self._layouts.search(shape, self.incumbents.try_likely)
        return True
