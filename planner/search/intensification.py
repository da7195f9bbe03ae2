"""What is tried in shapes that a failed proof leaves open: likely plans, and what is near them.

Bounds put thousands of plans of an open shape in an order that says little of which is the best;
estimates are a few per cent wrong, but nearer. So the shapes with the best estimates, and those of
the best plans, are looked into each by itself: its likely plans, then changes of the best of them
(:mod:`local_search`), also where that is slower than what another shape has. Each has a quota of
its
own, and as many are of every number of devices, so that with more memory, or devices that may stay
idle, what others gave hides few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from ..candidates.evaluator import Decision, Evaluator, Outcome
from ..heuristics.local_search import local_search
from ..space.pipeline_shape import PipelineShape
from .incumbents import Incumbents
from .work_limits import Limits, Quota

ESTIMATE_WITHIN = 1.25
"""Shapes whose estimate is worse than the best time by this factor are not looked into."""
START_WITHIN = 1.5
"""Shapes whose likely plans all are slower than the best by this factor are left at that."""
NEAR_WITHIN, NEAR_AFTER = 1.05, 50
"""So near to the best plan those of a shape are after so many simulations, or it is left."""


class Intensification(Incumbents):
    """A closer look at the shapes that are likely to hold the best plan.

    Args:
        evaluator: of what is asked; simulates decisions once.
        limits: work limits.
    """

    def __init__(self, evaluator: Evaluator, limits: Limits) -> None:
        super().__init__(evaluator, limits)
        self._shapes: list[PipelineShape] = []
        self._estimated: list[tuple[float, int]] = []
        self._enumerated = 0
        self._whole: set[PipelineShape] = set()

    def _intensify(self) -> None:
        """Look into the shapes of the best plans and those of the best estimates."""
        for shape in list(dict.fromkeys([*self._best_shapes(), *self._likely_shapes()])):
            if self._may_hold_better(shape):
                self._intensify_shape(shape)

    def _may_hold_better(self, shape: PipelineShape) -> bool:
        return shape not in self._whole and self._quick_value(shape) < self._incumbent_value

    def _best_shapes(self) -> Iterator[PipelineShape]:
        best = sorted(self._outcomes.values(), key=self.rank)
        shapes = dict.fromkeys(outcome.decision.shape for outcome in best)
        return islice(filter(self._may_hold_better, shapes), self.limits.local_search_shapes)

    def _likely_shapes(self) -> Iterator[PipelineShape]:
        """Those of the best estimates of every number of devices."""
        taken: Counter[int] = Counter()
        for estimate, number in self._estimated:
            shape = self._shapes[number]
            if estimate > self._incumbent_value * ESTIMATE_WITHIN:
                break
            if taken[shape.devices] < self.limits.local_search_shapes and self._may_hold_better(
                shape
            ):
                taken[shape.devices] += 1
                yield shape

    def _intensify_shape(self, shape: PipelineShape) -> None:
        """Likely plans of a shape, and what is near the best of them."""
        work, best_s = self._quota(self.limits.local_search), self._best_s(shape)
        first = self.evaluator.count + NEAR_AFTER
        found = [o for o in self._outcomes.values() if o.decision.shape == shape]

        def attempt(decision: Decision, cutoff_s: float = float("inf")) -> Outcome | None:
            is_far = self.evaluator.count >= first and _least_s(found) > best_s * NEAR_WITHIN
            if is_far or self._is_spent(work):
                return None
            outcome = self._try_likely(decision, lambda each: self._try_order(each, cutoff_s))
            if outcome is not None and outcome.feasible:
                found.append(outcome)
            return outcome

        self._layout_by_layout.search(shape, self._layer_tables(shape, usual=True), attempt)
        if found and _least_s(found) <= best_s * START_WITHIN:
            start = min(found, key=lambda outcome: outcome.step_time_s)
            local_search(start, self._layer_tables(shape), attempt, self._free_bytes)

    def _free_bytes(self, outcome: Outcome) -> list[float]:
        """What the devices of every stage of a plan that fits may hold more."""
        rows = (row for row in outcome.simulation.memory if row.tier == "hbm")
        return [-self.evaluator.rule.excess_bytes(row) for row in rows]

    def _quota(self, more: Quota) -> Quota:
        """What is spent so far, and ``more`` of each."""
        done = self.evaluator
        spent = (self._enumerated, done.tries, done.count)
        return Quota(*(a + b for a, b in zip(spent, more, strict=True)))

    def _is_spent(self, most: Quota) -> bool:
        return self.evaluator.count >= most.simulated or self.evaluator.tries >= most.tries


def _least_s(found: Sequence[Outcome]) -> float:
    return min((outcome.step_time_s for outcome in found), default=float("inf"))
