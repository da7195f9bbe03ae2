"""Best uniform plan by the estimate of a shape's chains."""

from __future__ import annotations

from ..bounds.shape_relaxations import ShapeRelaxations
from ..space.pipeline_shape import PipelineShape
from .heuristic import TryDecision


class UniformPlan:
    """One strategy for all blocks of a shape in likely boundaries."""

    def __init__(self, relaxations: ShapeRelaxations) -> None:
        self._relaxations = relaxations

    def search(self, shape: PipelineShape, attempt: TryDecision) -> None:
        """Try the approximate best uniform plan of a shape, if one fits."""
        decision = self._relaxations.uniform(shape)
        if decision is not None:
            attempt(decision)
