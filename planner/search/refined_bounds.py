"""Bounds of shapes of one device group, refined near the best plan.

A shape of a large model gets first the bound with aggregated stage memory, then that of its closed
chains, at last that of its relaxed step with critical paths, until it is within a per cent or two
of the best plan, or past the bound of an open shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..bounds.listed_bounds import ListedBounds
from ..bounds.shape_values import ShapeValues
from ..heuristics.lp_rounding import LpRounding
from ..space.pipeline_shape import PipelineShape
from .enumeration import ROUNDING
from .incumbents import Incumbents
from .roles import Refinement

PROVEN_WITHIN, MANY_WITHIN, MANY_OPTIONS = 0.01, 0.018, 40_000
"""Shapes of large models whose bound is this near to the best plan are not searched; the second
where those that seemed good have this many options: each further width costs a tenth of a second
there, and the last per cent of the proof a fifth of the search."""


class RefinedBounds(ListedBounds):
    """Quick to exact bounds of shapes, as values of the objective.

    ``open_value``: least bound of a known open shape; no other needs a better bound.
    """

    def __init__(self, values: ShapeValues, incumbents: Incumbents, rounding: LpRounding) -> None:
        super().__init__(values)
        self._bounds = values.bounds
        self._is_large = values.bounds.tables.space.is_large
        self._incumbents = incumbents
        self._rounding = rounding
        self.open_value = float("inf")

    @property
    def refinements(self) -> Sequence[Refinement]:
        """Bounds by growing effort."""
        levels = (self.aggregated, self.closed_chains) if self._is_large else ()
        return (*levels, self.exact)

    @cached_property
    def enough(self) -> float:
        """Sufficient part of the best value, fixed at first use."""
        if not self._is_large:
            return 1 - ROUNDING
        has_many = self._bounds.relaxations.options >= MANY_OPTIONS
        return 1 - (MANY_WITHIN if has_many else PROVEN_WITHIN)

    def aggregated(self, shape: PipelineShape) -> float:
        """Bound with aggregated stage memory."""
        self._incumbents.check_deadline()
        return self._bounds.aggregated_s(shape) * self._values.factor(shape)

    def closed_chains(self, shape: PipelineShape) -> float:
        """Closed-chain bound of a shape with untimed steps, for ranking."""
        self._incumbents.check_deadline()
        enough_s = self.enough * self._incumbents.best_s(shape)
        bound_s = self._bounds.exact_s(shape, enough_s, adds_critical_paths=False)
        return bound_s * self._values.factor(shape)

    def exact(self, shape: PipelineShape) -> float:
        """Best bound, up to the search's need."""
        self._incumbents.check_deadline()
        factor = self._values.factor(shape)
        enough_s = self.enough * self._incumbents.best_s(shape)
        bound_s = self._bounds.exact_s(shape, min(enough_s, self.open_value / factor))
        if self._is_large and bound_s < enough_s and self.open_value == float("inf"):
            self._incumbents.check_deadline()
            self._rounding.search(shape, self._incumbents.try_likely)
        return bound_s * factor
