"""The uniform plan that the chains of a shape estimate to be the best."""

from __future__ import annotations

from ..bounds.shape_relaxations import ShapeRelaxations
from ..space.pipeline_shape import PipelineShape
from .heuristic import TryDecision


class UniformPlan:
    """One strategy for all blocks of a shape in likely boundaries.

    Args:
        relaxations: of the shapes.
    """

    def __init__(self, relaxations: ShapeRelaxations) -> None:
        self._relaxations = relaxations

    def search(self, shape: PipelineShape, attempt: TryDecision) -> None:
        """Try about the best uniform plan of a shape, where one fits."""
        decision = self._relaxations.uniform(shape)
        if decision is not None:
            attempt(decision)
