"""What the shapes and plans of a request are worth to its objective."""

from __future__ import annotations

from collections.abc import Sequence

from ..candidates.evaluator import Evaluator, Outcome, PlanHashOrder
from ..space.objective import StepTime
from ..space.pipeline_shape import PipelineShape
from .shape_costs import ShapeCosts


class ShapeValues(ShapeCosts):
    """Costs of shapes in seconds, and their values: seconds times the objective's factor.

    Args:
        evaluator: of the request; simulates its decisions once.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        super().__init__(evaluator)
        self.objective = evaluator.request.objective

    def value(self, outcome: Outcome) -> float:
        """What the objective makes of a simulated plan."""
        return outcome.step_time_s * self.objective.factor(outcome.decision.shape)

    def rank(self, outcome: Outcome) -> tuple[float, float, int, PlanHashOrder]:
        """Best first; among equals the fastest, the simplest, then by the plan's own bytes."""
        simple = outcome.distinct_strategies
        return (self.value(outcome), outcome.step_time_s, simple, outcome.hash_order)

    def _quick_value(self, shape: PipelineShape) -> float:
        """The quick bound of a shape as a value."""
        return self._quick_bound(shape) * self.objective.factor(shape)

    def _floor_value(self) -> float:
        """A value that no plan is below, known without looking at any shape."""
        devices = self.request.cluster.device_count
        return self.objective.floor(self.work.floor(), self.pricer.step_s, devices)

    def _seconds_bound(self, bound: float, shapes: Sequence[PipelineShape], best: Outcome) -> float:
        """What a proven bound on the value says of the seconds of every plan's step.

        Args:
            bound: no plan of the space has a lower value.
            shapes: all of the space, or none where they are not known.
            best: a plan of the space.
        """
        if isinstance(self.objective, StepTime):
            return bound
        if not shapes:
            return min(self.work.floor(), best.step_time_s)
        factor = self.objective.factor
        each = (max(bound / factor(shape), self._quick_bound(shape)) for shape in shapes)
        return min(best.step_time_s, *each)
