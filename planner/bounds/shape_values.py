"""Bounds of shapes as values of the objective: seconds times the factor of the shape."""

from __future__ import annotations

from collections.abc import Sequence

from ..candidates.evaluator import Evaluator, Outcome
from ..space.objective import StepTime
from ..space.pipeline_shape import PipelineShape
from .shape_bounds import ShapeBounds


class ShapeValues:
    """Values that bounds of shapes prove.

    Args:
        bounds: of the shapes, in seconds.
        evaluator: of the request, whose objective counts.
    """

    def __init__(self, bounds: ShapeBounds, evaluator: Evaluator) -> None:
        self.bounds = bounds
        self.objective = evaluator.request.objective
        self._devices = evaluator.request.cluster.device_count
        self._host_s = evaluator.simulator.pricer.step_s

    def factor(self, shape: PipelineShape) -> float:
        """Value of a second of a step of a shape."""
        return self.objective.factor(shape)

    def quick(self, shape: PipelineShape) -> float:
        """The quick bound of a shape as a value."""
        return self.bounds.quick_s(shape) * self.objective.factor(shape)

    def floor(self) -> float:
        """A value that no plan is below, known without looking at any shape."""
        floor_s = self.bounds.quick.compute.floor()
        return self.objective.floor(floor_s, self._host_s, self._devices)

    def seconds(self, bound: float, shapes: Sequence[PipelineShape], best: Outcome | None) -> float:
        """Seconds of every plan's step at the least, from a proven bound on the value.

        Args:
            bound: no plan of the space has a lower value.
            shapes: all of the space, or none where they are not known.
            best: a plan of the space, where one is known.
        """
        if isinstance(self.objective, StepTime):
            return bound
        best_s = float("inf") if best is None else best.step_time_s
        if not shapes:
            return min(self.bounds.quick.compute.floor(), best_s)
        factor, quick_s = self.objective.factor, self.bounds.quick_s
        return min(best_s, *(max(bound / factor(shape), quick_s(shape)) for shape in shapes))
