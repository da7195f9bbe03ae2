"""The proof of a search: shapes by growing bound, small ones enumerated, and what else is done.

What is proven is the least bound of a shape that stays open. Where a shape of a small model does,
the others are still looked into, a part of each, and the best plans are changed here and there
(:mod:`.descent`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .bounded_shapes import Bounded, BoundedShapes
from .candidates import Decision, Evaluator, Outcome
from .descent import descend
from .exhaustive import bounded_plans
from .limits import Limits, Quota
from .shape import Shape
from .trials import Trials

PROVEN_WITHIN = 0.01
"""Shapes of large models whose bound is this near to the best plan are not looked into."""
ROUNDING = 1e-12
"""Bounds within this relative distance of the best time count as passing it."""
Progress = Callable[[int, int, float], None]
"""Told shapes seen, shapes in all, and the best value."""


class Proof(Trials):
    """What bounds and enumeration prove of the plans of a request.

    Args:
        evaluator: of what is asked; simulates decisions once.
        limits: work limits.
    """

    def __init__(self, evaluator: Evaluator, limits: Limits) -> None:
        super().__init__(evaluator, limits)
        self._progress: Progress = lambda seen, total, best: None
        self._enough = 1 - (PROVEN_WITHIN if self.space.is_large else ROUNDING)
        self._shapes: list[Shape] = []
        self._enumerated = 0
        self._open_value = float("inf")  # the least bound of a shape that stays open
        self._proven_value = 0.0  # of all plans but those that were simulated
        self._whole: set[Shape] = set()

    def _exact_bound(self, number: int) -> float:
        """The best bound of a shape; once one stays open, no other needs a better than that one."""
        self._check_deadline()
        shape, factor = self._shapes[number], self.objective.factor(self._shapes[number])
        enough_s = self._enough * self._best_s(shape)
        bound_s = self._shape_bound(shape, min(enough_s, self._open_value / factor))
        if self.space.is_large and bound_s < enough_s and self._open_value == float("inf"):
            self._try_relaxed(shape)
        return bound_s * factor

    def _prove(self, shapes: list[Shape], bounded: Sequence[Bounded]) -> tuple[float, bool]:
        """Enumerate small shapes by growing bound; what is proven, and whether all of it is.

        The first shape that stays open is the bound. Later ones that are too large to be
        enumerated need no exact bounds: they can neither lower it nor give a plan.
        """
        done: set[int] = set()
        work = self._quota(self.limits.proof)
        for bound, number in bounded:
            if bound >= self._best * (1 - ROUNDING):
                return self._best, True
            self._proven_value = bound
            self._progress(len(done), len(shapes), self._best)
            done.add(number)
            if not self._enumerate(shapes[number], work):
                if not self.space.is_large:
                    self._enumerate_rest(shapes, done)
                    self._descend()
                proven = bound >= self._best * (1 - ROUNDING)
                return (self._best if proven else bound), proven
        return self._best, True

    def _enumerate_rest(self, shapes: list[Shape], done: set[int]) -> None:
        """The small shapes that are left, for better plans, most devices first.

        Nothing is proven by them any more, so a small number of simulations is enough, and for
        every number of devices the same: where devices may stay idle, a larger cluster then looks
        at what a smaller one would. A shape has a part of it, for one with thousands of plans that
        are about as fast would leave nothing to the next.
        """
        most = self.limits.enumerated_shape
        groups: dict[int, list[Bounded]] = {}
        for number, shape in enumerate(shapes):
            if number not in done and self._plan_count(shape) <= most:
                bound = self._quick_value(shape)
                groups.setdefault(shape.stages * shape.ranks, []).append((bound, number))
        for used in sorted(groups, reverse=True):
            work = self._quota(self.limits.rest)
            for bound, number in BoundedShapes(groups[used], self._exact_bound):
                if bound >= self._best * (1 - ROUNDING) or self._is_spent(work):
                    break
                self._progress(len(done), len(shapes), self._best)
                own = self._quota(self.limits.rest_of_shape)
                self._enumerate(shapes[number], Quota(*map(min, work, own)))

    def _descend(self) -> None:
        """Plans near the best one of each of the best shapes that were not enumerated whole."""
        starts: dict[Shape, Outcome] = {}
        for outcome in sorted(self._outcomes.values(), key=self.rank):
            if outcome.decision.shape not in self._whole:
                starts.setdefault(outcome.decision.shape, outcome)
        for shape, start in list(starts.items())[: self.limits.descents]:
            work = self._quota(self.limits.descent)

            def attempt(decision: Decision, give_up_s: float, work: Quota = work) -> Outcome | None:
                if self._is_spent(work):
                    return None
                return self._try_likely(decision, lambda each: self._try_order(each, give_up_s))

            descend(start, self._layer_tables(shape), attempt)

    def _enumerate(self, shape: Shape, most: Quota) -> bool:
        """Simulate every plan of a shape that may be the best; False if there are too many."""
        count = self._plan_count(shape)
        too_many = self._enumerated + count > most.enumerated
        if count > self.limits.enumerated_shape or too_many or self._has_many_cuts(shape):
            return False
        tables = self._layer_tables(shape)
        self._enumerated += count
        budget, end_s = self._live_budget(shape), self.work.end_s(shape)
        for cuts in self._all_cuts(shape):
            self._check_deadline()
            best_s = self._best_s(shape) - end_s
            for bound, decision in bounded_plans(shape, cuts, tables, budget, best_s):
                if bound + end_s >= self._best_s(shape) * (1 - ROUNDING):
                    break
                if self._is_spent(most):
                    return False
                self._try(decision)
        self._whole.add(shape)
        return True

    def _quota(self, more: Quota) -> Quota:
        """What is spent so far, and ``more`` of each."""
        done = self.evaluator
        spent = (self._enumerated, done.tries, done.count)
        return Quota(*(a + b for a, b in zip(spent, more, strict=True)))

    def _is_spent(self, most: Quota) -> bool:
        return self.evaluator.count >= most.simulated or self.evaluator.tries >= most.tries
