"""Proven bounds of shapes over several device groups, for the engine."""

from __future__ import annotations

from collections.abc import Sequence

from ..candidates.evaluator import Outcome
from ..search.roles import Refinement
from ..space.pipeline_shape import PipelineShape
from .shape_costs import HeterogeneousCosts


class HeterogeneousBounds:
    """Bounds on the step time, which is the objective."""

    def __init__(self, costs: HeterogeneousCosts) -> None:
        self._costs = costs

    @property
    def refinements(self) -> Sequence[Refinement]:
        """None: quick bounds are not refined."""
        return ()

    def quick(self, shape: PipelineShape) -> float:
        """Minimum seconds of every plan of a shape."""
        return self._costs.compute.bound_s(shape)

    def unlisted(self) -> float:
        """The efficiency bound, unless all shapes are listed."""
        if self._costs.space.complete:
            return float("inf")
        return self._costs.efficiency.global_bound_s()

    def interrupted(self, listed: float | None) -> float:
        """The efficiency bound, whatever the shapes."""
        return self._costs.efficiency.global_bound_s()

    def seconds(self, bound: float, shapes: Sequence[PipelineShape], best: Outcome | None) -> float:
        """The bound itself."""
        return bound
