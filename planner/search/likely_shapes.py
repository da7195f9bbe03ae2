"""Good plans from the shapes with the best estimates."""

from __future__ import annotations

from collections import Counter

from ..heuristics.heuristic import Heuristic
from .incumbents import Incumbents
from .roles import Nodes, Progress
from .shape_ranking import ShapeRanking

ESTIMATE_WITHIN = 1.25
"""Shapes whose estimate is worse than the best value by this factor are not searched."""


class LikelyShapes:
    """Search of the best-estimated shapes, few of each stages and width.

    Args:
        ranking: estimates of shapes.
        heuristic: of a shape.
        incumbents: tries the plans.
        most: shapes in all.
        most_alike: shapes of one number of stages and width.
        progress: receives the shapes tried.
    """

    def __init__(
        self,
        ranking: ShapeRanking,
        heuristic: Heuristic,
        incumbents: Incumbents,
        most: int,
        most_alike: int,
        progress: Progress,
    ) -> None:
        self._ranking = ranking
        self._heuristic = heuristic
        self._incumbents = incumbents
        self._most = most
        self._most_alike = most_alike
        self._progress = progress

    def run(self, nodes: Nodes) -> None:
        """Try plans of the likely shapes."""
        incumbents, shapes = self._incumbents, nodes.shapes
        tried: Counter[tuple[int, int]] = Counter()
        for estimate, number in self._ranking.estimated(shapes):
            shape = shapes[number]
            incumbents.check_deadline()
            self._progress(sum(tried.values()), len(shapes), incumbents.best_value)
            if sum(tried.values()) >= self._most or estimate == float("inf"):
                break
            if incumbents.outcomes and estimate > incumbents.best_value * ESTIMATE_WITHIN:
                break
            if tried[shape.stages, shape.ranks] < self._most_alike:
                tried[shape.stages, shape.ranks] += 1
                self._heuristic.search(shape, incumbents.try_likely)
