"""Shapes by likely value: roughly, or by estimates."""

from __future__ import annotations

from collections.abc import Sequence

from ..bounds.shape_values import ShapeValues
from ..space.pipeline_shape import PipelineShape
from .incumbents import Incumbents


class ShapeRanking:
    """Ranking of the shapes of a search."""

    def __init__(self, values: ShapeValues, incumbents: Incumbents, most: int) -> None:
        self._values = values
        self._incumbents = incumbents
        self._most = most
        self._rough: list[int] | None = None
        self._estimated: list[tuple[float, int]] | None = None

    def rough(self, shapes: Sequence[PipelineShape]) -> list[int]:
        """Numbers of all shapes, the roughly fastest first."""
        if self._rough is None:
            values = [self._values.bounds.rough_s(s) * self._values.factor(s) for s in shapes]
            self._rough = sorted(range(len(values)), key=lambda number: (values[number], number))
        return self._rough

    def estimated(self, shapes: Sequence[PipelineShape]) -> list[tuple[float, int]]:
        """(estimate, number) of the roughly fastest shapes, best first."""
        if self._estimated is None:
            self._estimated = self._estimate(shapes)
        return self._estimated

    def _estimate(self, shapes: Sequence[PipelineShape]) -> list[tuple[float, int]]:
        bounds, estimated = self._values.bounds, list[tuple[float, int]]()
        for number in self.rough(shapes):
            if len(estimated) >= self._most:
                break
            shape = shapes[number]
            if bounds.may_estimate(shape):
                self._incumbents.check_deadline()
                estimated.append((bounds.estimate_s(shape) * self._values.factor(shape), number))
        return sorted(estimated)
