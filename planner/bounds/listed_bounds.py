"""Bounds of a search that lists every shape, but for their refinements."""

from __future__ import annotations

from collections.abc import Sequence

from ..candidates.evaluator import Outcome
from ..space.pipeline_shape import PipelineShape
from .shape_values import ShapeValues


class ListedBounds:
    """Quick bounds of shapes, as values of the objective."""

    def __init__(self, values: ShapeValues) -> None:
        self._values = values

    def quick(self, shape: PipelineShape) -> float:
        """Immediate bound."""
        return self._values.quick(shape)

    def unlisted(self) -> float:
        """Infinite: every shape is listed."""
        return float("inf")

    def interrupted(self, listed: float | None) -> float:
        """Bound of the listed shapes, or before listing the space's floor."""
        return self._values.floor() if listed is None else listed

    def seconds(self, bound: float, shapes: Sequence[PipelineShape], best: Outcome | None) -> float:
        """Minimum seconds of every plan's step, from a proven value bound."""
        return self._values.seconds(bound, shapes, best)
