"""Enumeration of small shapes: plans simulated by growing bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from ..bounds.shape_bounds import ShapeBounds
from ..candidates.evaluator import Decision
from ..dynamic_programming.enumeration import bounded_plans
from ..space.pipeline_shape import PipelineShape
from ..tables.option_table import OptionTable
from .incumbents import Incumbents
from .roles import ShapePlans
from .work_limits import Quota, WorkSpent

ROUNDING = 1e-12
"""Bounds within this relative distance of the best time count as passing it."""


class Enumeration:
    """Enumeration of shapes within work limits.

    ``whole``: shapes enumerated completely. ``is_all``: whether options are all of a layer's
    values; if some stand for numbers between them, enumeration proves nothing.
    """

    def __init__(
        self,
        plans_of: Callable[[PipelineShape], ShapePlans],
        incumbents: Incumbents,
        work: WorkSpent,
        most: int,
        is_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_all = is_all
        self._plans_of = plans_of
        self._incumbents = incumbents
        self._work = work
        self._most = most
        self.whole: set[PipelineShape] = set()

    def run(self, shape: PipelineShape, quota: Quota) -> bool:
        """Simulate every possibly best plan; False if others are left."""
        plans, incumbents = self._plans_of(shape), self._incumbents
        count = plans.count
        is_over = self._work.enumerated + count > quota.enumerated
        if count > self._most or is_over or not plans.is_enumerable:
            return False
        self._work.enumerated += count
        for boundaries in plans.boundaries() if count else ():
            incumbents.check_deadline()
            for bound_s, decision in plans.bounded(boundaries, incumbents.best_s(shape)):
                if bound_s >= incumbents.best_s(shape) * (1 - ROUNDING):
                    break
                if self._work.has_spent(quota):
                    return False
                incumbents.try_decision(decision)
        self.whole.add(shape)
        return self._is_all()


class SingleGroupPlans:
    """Plans of a shape on one device group."""

    def __init__(self, bounds: ShapeBounds, shape: PipelineShape) -> None:
        self._tables = bounds.tables
        self._shape = shape
        self._budget = bounds.contexts.budget(shape)
        self._end_s = bounds.quick.end_s(shape)

    @property
    def count(self) -> int:
        """Number of plans."""
        return self._tables.plan_count(self._shape)

    @property
    def is_enumerable(self) -> bool:
        """True unless visiting every partition alone takes long."""
        return not self._tables.has_many_boundaries(self._shape)

    @cached_property
    def _options(self) -> list[OptionTable]:
        return self._tables.layers(self._shape)

    def boundaries(self) -> Iterator[tuple[int, ...]]:
        """Every partition of the layers."""
        return self._tables.boundaries(self._shape)

    def bounded(
        self, boundaries: tuple[int, ...], limit_s: float
    ) -> Iterator[tuple[float, Decision]]:
        """Plans within boundaries and below ``limit_s``, by growing bound."""
        passes_s = limit_s - self._end_s
        plans = bounded_plans(self._shape, boundaries, self._options, self._budget, passes_s)
        for bound_s, decision in plans:
            yield bound_s + self._end_s, decision
