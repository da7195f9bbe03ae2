"""Bounds of the shapes of one device group, refined until they are near the best plan.

Of a large model a shape gets the bound with aggregated stage memory first, then that of its closed
chains, at last that of its relaxed step with the step's critical paths, until it is within a per
cent or two of the best plan, or past the bound of a shape that stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..bounds.shape_values import ShapeValues
from ..candidates.evaluator import Outcome
from ..heuristics.lp_rounding import LpRounding
from ..space.pipeline_shape import PipelineShape
from .enumeration import ROUNDING
from .incumbents import Incumbents
from .roles import Refinement

PROVEN_WITHIN, MANY_WITHIN, MANY_OPTIONS = 0.01, 0.018, 40_000
"""Shapes of large models whose bound is this near to the best plan are not searched; the second
where those that seemed good have this many options: each further width costs a tenth of a second
there, and the last per cent of the proof a fifth of the search."""


class RefinedBounds:
    """Quick to exact bounds of shapes, as values of the objective.

    Args:
        values: bounds as values.
        incumbents: what the search has found.
        rounding: makes plans of the relaxed steps of large models as they are solved.

    ``open_value`` is the least bound of a shape that is known to stay open: no other needs a
    better bound than that.
    """

    def __init__(self, values: ShapeValues, incumbents: Incumbents, rounding: LpRounding) -> None:
        self._values = values
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
        """Part of the best value that a bound has to reach; fixed when it is first needed."""
        if not self._is_large:
            return 1 - ROUNDING
        has_many = self._bounds.relaxations.options >= MANY_OPTIONS
        return 1 - (MANY_WITHIN if has_many else PROVEN_WITHIN)

    def quick(self, shape: PipelineShape) -> float:
        """A bound at once."""
        return self._values.quick(shape)

    def aggregated(self, shape: PipelineShape) -> float:
        """The bound with aggregated stage memory."""
        self._incumbents.check_deadline()
        return self._bounds.aggregated_s(shape) * self._values.factor(shape)

    def closed_chains(self, shape: PipelineShape) -> float:
        """The bound of a shape whose steps are not timed yet: it puts the likely ones first."""
        self._incumbents.check_deadline()
        enough_s = self.enough * self._incumbents.best_s(shape)
        bound_s = self._bounds.exact_s(shape, enough_s, adds_critical_paths=False)
        return bound_s * self._values.factor(shape)

    def exact(self, shape: PipelineShape) -> float:
        """The best bound, but no better than the search needs."""
        self._incumbents.check_deadline()
        factor = self._values.factor(shape)
        enough_s = self.enough * self._incumbents.best_s(shape)
        bound_s = self._bounds.exact_s(shape, min(enough_s, self.open_value / factor))
        if self._is_large and bound_s < enough_s and self.open_value == float("inf"):
            self._incumbents.check_deadline()
            self._rounding.search(shape, self._incumbents.try_likely)
        return bound_s * factor

    def unlisted(self) -> float:
        """Infinite: every shape is listed."""
        return float("inf")

    def interrupted(self, listed: float | None) -> float:
        """The bound of the listed shapes, or the floor of the space before they are listed."""
        return self._values.floor() if listed is None else listed

    def seconds(self, bound: float, shapes: Sequence[PipelineShape], best: Outcome | None) -> float:
        """Least seconds of every plan's step, from a proven bound on the value."""
        return self._values.seconds(bound, shapes, best)
