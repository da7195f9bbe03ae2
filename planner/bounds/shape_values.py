"""Shape bounds as objective values: seconds times the shape's factor."""

from __future__ import annotations

from collections.abc import Sequence

from ..candidates.evaluator import Evaluator, Outcome
from ..space.objective import StepTime
from ..space.pipeline_shape import PipelineShape
from .shape_bounds import ShapeBounds


class ShapeValues:
    """Objective values proven by bounds of shapes."""

    def __init__(self, bounds: ShapeBounds, evaluator: Evaluator) -> None:
        self.bounds = bounds
        self.objective = evaluator.request.objective
        self._devices = evaluator.request.cluster.device_count
        self._host_s = evaluator.simulator.pricer.step_s

    def factor(self, shape: PipelineShape) -> float:
        """Value of a second of a step of a shape."""
        return self.objective.factor(shape)

    def quick(self, shape: PipelineShape) -> float:
        """Quick bound of a shape as a value."""
        return self.bounds.quick_s(shape) * self.objective.factor(shape)

    def floor(self) -> float:
        """Lower bound on every plan's value, independent of any shape."""
        floor_s = self.bounds.quick.compute.floor()
        return self.objective.floor(floor_s, self._host_s, self._devices)

    def seconds(self, bound: float, shapes: Sequence[PipelineShape], best: Outcome | None) -> float:
        """Proven minimum seconds of every plan's step, from a value bound."""
        if isinstance(self.objective, StepTime):
            return bound
        best_s = float("inf") if best is None else best.step_time_s
        if not shapes:
            return min(self.bounds.quick.compute.floor(), best_s)
        factor, quick_s = self.objective.factor, self.bounds.quick_s
        return min(best_s, *(max(bound / factor(shape), quick_s(shape)) for shape in shapes))
