"""The proof of a search: shapes by growing bound, small ones enumerated, and what else is done.

What is proven is the least bound of a shape that stays open. Where a shape of a small model does,
the others are still looked into, a part of each, and the likely ones by their estimates
(:mod:`intensification`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from ..candidates.evaluator import Evaluator
from ..dynamic_programming.enumeration import bounded_plans
from ..space.pipeline_shape import PipelineShape
from .intensification import Intensification
from .node_queue import BoundedNode, NodeQueue
from .work_limits import Limits, Quota

PROVEN_WITHIN, MANY_WITHIN, MANY_OPTIONS = 0.01, 0.018, 40_000
"""Shapes of large models whose bound is this near to the best plan are not looked into; the second
where those that seemed good have this many options: each further width costs a tenth of a second
there, and the last per cent of the proof a fifth of the search."""
ROUNDING = 1e-12
"""Bounds within this relative distance of the best time count as passing it."""
Progress = Callable[[int, int, float], None]
"""Told shapes seen, shapes in all, and the best value."""


class Bounding(Intensification):
    """What bounds and enumeration prove of the plans of a request.

    Args:
        evaluator: of what is asked; simulates decisions once.
        limits: work limits.
    """

    def __init__(self, evaluator: Evaluator, limits: Limits) -> None:
        super().__init__(evaluator, limits)
        self._progress: Progress = lambda seen, total, best: None
        self._open_value = float("inf")  # the least bound of a shape that stays open
        self._proven_value = 0.0  # of all plans but those that were simulated

    @cached_property
    def _enough(self) -> float:
        """The part of the best value that a bound has to reach; told when the first is compared."""
        if not self.space.is_large:
            return 1 - ROUNDING
        return 1 - (MANY_WITHIN if self._relaxations.options >= MANY_OPTIONS else PROVEN_WITHIN)

    def _exact_bound(self, number: int) -> float:
        """The best bound of a shape; once one stays open, no other needs a better than that one."""
        self._check_deadline()
        shape, factor = self._shapes[number], self.objective.factor(self._shapes[number])
        enough_s = self._enough * self._best_s(shape)
        bound_s = self._shape_bound(shape, min(enough_s, self._open_value / factor))
        if self.space.is_large and bound_s < enough_s and self._open_value == float("inf"):
            self._round_relaxation(shape)
        return bound_s * factor

    def _prove(
        self, shapes: list[PipelineShape], queue: Sequence[BoundedNode]
    ) -> tuple[float, bool]:
        """Enumerate small shapes by growing bound; what is proven, and whether all of it is.

        The first shape that stays open is the bound. Later ones that are too large to be
        enumerated need no exact bounds: they can neither lower it nor give a plan.
        """
        done: set[int] = set()
        work = self._quota(self.limits.proof)
        for bound, number in queue:
            if bound >= self._incumbent_value * (1 - ROUNDING):
                return self._incumbent_value, True
            self._proven_value = bound
            self._progress(len(done), len(shapes), self._incumbent_value)
            done.add(number)
            if not self._enumerate(shapes[number], work):
                if not self.space.is_large:
                    self._enumerate_rest(shapes, done)
                    self._intensify()
                proven = bound >= self._incumbent_value * (1 - ROUNDING)
                return (self._incumbent_value if proven else bound), proven
        return self._incumbent_value, True

    def _enumerate_rest(self, shapes: list[PipelineShape], done: set[int]) -> None:
        """The small shapes that are left, for better plans, most devices first.

        Nothing is proven by them any more, so a small number of simulations is enough, and for
        every number of devices the same: where devices may stay idle, a larger cluster then looks
        at what a smaller one would. A shape has a part of it, for one with thousands of plans that
        are about as fast would leave nothing to the next.
        """
        most = self.limits.enumerated_shape
        groups: dict[int, list[BoundedNode]] = {}
        for number, shape in enumerate(shapes):
            if number not in done and self._plan_count(shape) <= most:
                bound = self._quick_value(shape)
                groups.setdefault(shape.stages * shape.ranks, []).append((bound, number))
        for used in sorted(groups, reverse=True):
            work = self._quota(self.limits.rest)
            for bound, number in NodeQueue(groups[used], self._exact_bound):
                if bound >= self._incumbent_value * (1 - ROUNDING) or self._is_spent(work):
                    break
                self._progress(len(done), len(shapes), self._incumbent_value)
                own = self._quota(self.limits.rest_of_shape)
                self._enumerate(shapes[number], Quota(*map(min, work, own)))

    def _enumerate(self, shape: PipelineShape, most: Quota) -> bool:
        """Simulate every plan of a shape that may be the best; False if there are too many."""
        count = self._plan_count(shape)
        too_many = self._enumerated + count > most.enumerated
        if count > self.limits.enumerated_shape or too_many or self._has_many_boundaries(shape):
            return False
        tables = self._layer_tables(shape)
        self._enumerated += count
        budget, end_s = self._live_budget(shape), self.work.end_s(shape)
        for boundaries in self._all_boundaries(shape):
            self._check_deadline()
            best_s = self._best_s(shape) - end_s
            for bound, decision in bounded_plans(shape, boundaries, tables, budget, best_s):
                if bound + end_s >= self._best_s(shape) * (1 - ROUNDING):
                    break
                if self._is_spent(most):
                    return False
                self._try(decision)
        self._whole.add(shape)
        return True
