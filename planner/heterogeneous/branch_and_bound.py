"""The search over several device groups together: bound, look in likely shapes, prove.

As :mod:`branch_and_bound`. Shapes whose stages are alike and whose devices take equal parts are
looked
into first and with the same effort as if there were no others, so a plan is never slower than the
best of those. What is known to be reached without mixing (``best_s``) is a mark to beat.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal

from ..candidates.evaluator import Evaluator
from ..dynamic_programming.enumeration import all_boundaries
from ..search.branch_and_bound import SolveResult
from ..search.incumbents import DeadlineError
from ..space.pipeline_shape import PipelineShape
from .enumeration import bounded_stage_plans, plan_count
from .incumbents import HeterogeneousIncumbents, rank
from .incumbents import HeterogeneousLimits as HeterogeneousLimits
from .layout_by_layout import HeterogeneousLayouts
from .search_space import is_uniform
from .step_estimates import StepEstimates

ROUNDING = 1e-12
"""Bounds within this relative distance of the best time count as passing it."""
MOST_LOOKED = 6
"""Shapes of which it is asked whether they have room, for each that is estimated."""
ESTIMATE_WITHIN = 1.3
"""Shapes whose rough time is worse than the best by this factor are not looked into."""


class HeterogeneousSearch(HeterogeneousIncumbents):
    """One search for the best plan over several device groups of a request.

    Args:
        evaluator: of what is asked; simulates decisions once.
        limits: work limits.
        progress: called with (shapes seen, shapes in all, best seconds) now and then.
        best_s: a step time that is reached without mixing: only faster plans are wanted.
        uniform_only: keep to stages of one width whose devices take equal parts.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        limits: HeterogeneousLimits | None = None,
        progress: Callable[[int, int, float], None] | None = None,
        best_s: float = float("inf"),
        uniform_only: bool = False,
    ) -> None:
        super().__init__(evaluator, limits or HeterogeneousLimits(), best_s)
        self._progress = progress or (lambda seen, total, best: None)
        self._uniform_only = uniform_only
        self._estimates = StepEstimates(self.layer_classes)
        self._layout_by_layout = HeterogeneousLayouts(
            self.layer_classes, evaluator.rule.excess_bytes
        )
        self._shapes: list[PipelineShape] = []
        self._bounds: list[float] = []
        self._looked: set[int] = set()
        self._enumerated = 0
        self.interrupted = False

    def run(self) -> SolveResult:
        """Search until proof, work limit, deadline or Ctrl-C; ``outcomes`` may be empty."""
        proven = late = False
        lower_bound = None
        try:
            self._list()
            equal = [n for n, shape in enumerate(self._shapes) if is_uniform(shape)]
            self._look(equal)
            if not self._uniform_only:
                self._look(range(len(self._shapes)))
            self._look_near()
            lower_bound, proven = self._prove()
        except KeyboardInterrupt:
            self.interrupted = True
        except DeadlineError:
            late = True
        if lower_bound is None:
            lower_bound = self._floor.global_bound_s()
        return self._found(lower_bound, proven, late or self.interrupted)

    def _found(self, lower_bound: float, proven: bool, ended: bool) -> SolveResult:
        stopped: Literal["proof", "work", "deadline"] = "proof" if proven else "work"
        return SolveResult(
            outcomes=sorted(self._outcomes.values(), key=rank),
            lower_bound=min(lower_bound, self._incumbent_value),
            lower_bound_s=min(lower_bound, self._incumbent_value),
            stopped_by="deadline" if ended else stopped,
            simulated=self.evaluator.count,
            shapes=self._shapes,
            seconds=time.monotonic() - self._start,
            nearest=self._nearest_infeasible,
        )

    def _list(self) -> None:
        """All shapes with their proven bounds."""
        for shape in self.space.shapes():
            self._check_deadline()
            if self._uniform_only and not is_uniform(shape):
                continue
            bound = self._work.bound_s(shape)
            if bound < float("inf"):
                self._shapes.append(shape)
                self._bounds.append(bound)

    def _rough(self, number: int) -> float:
        """A step time to put shapes in order by: the proven bound, and the schedule's bubble."""
        shape = self._shapes[number]
        if shape.fills_and_drains:
            return self._bounds[number]
        bubble = (shape.stages - 1) / (shape.chunks * shape.microbatches)
        return self._bounds[number] * (1 + bubble)

    def _estimated(self, numbers: Sequence[int]) -> list[tuple[float, int]]:
        """Estimates of the shapes that are roughly the fastest, a few of each sort, best first."""
        found: list[tuple[float, int]] = []
        looked = 0
        seen: Counter[tuple[object, ...]] = Counter()
        for number in sorted(numbers, key=lambda n: (self._rough(n), n)):
            if len(found) >= self.limits.estimates or looked >= MOST_LOOKED * self.limits.estimates:
                break
            shape = self._shapes[number]
            sort = (_layout(shape), shape.kind)
            if seen[sort] >= self.limits.estimates_alike:
                continue
            estimated_s = self._estimate(shape)
            looked += 1
            if estimated_s is not None:
                seen[sort] += 1
                found.append((estimated_s, number))
        return sorted(found)

    def _estimate(self, shape: PipelineShape) -> float | None:
        """A likely step time; None where stages have no options for some layer."""
        self._check_deadline()
        known = self._stage_plan(shape)
        return None if known is None else self._estimates.step_s(shape, *known)

    def _look(self, numbers: Sequence[int]) -> None:
        """Good plans from the shapes with the best estimates."""
        tried: Counter[tuple[object, ...]] = Counter()
        before = self._passes
        for estimated_s, number in self._estimated(numbers):
            shape = self._shapes[number]
            enough = self._outcomes and self._passes - before > self.limits.heuristic_passes
            if sum(tried.values()) >= self.limits.heuristic_shapes or enough:
                break
            # While nothing is known to fit, shapes that seem to have no room are looked into too.
            if estimated_s > self._incumbent_value * ESTIMATE_WITHIN:
                break
            layout = _layout(shape)
            if tried[layout] < self.limits.heuristic_shapes_alike and self._look_into(number):
                tried[layout] += 1

    def _look_into(self, number: int) -> bool:
        """Good plans of a shape; False where stages have no options for some layer."""
        self._check_deadline()
        known = self._stage_plan(self._shapes[number])
        if known is None:
            return False
        self._looked.add(number)
        self._progress(len(self._looked), len(self._shapes), self._incumbent_value)
        self._layout_by_layout.search(self._shapes[number], known, self._try_chosen)
        return True

    def _look_near(self) -> None:
        """Good plans of shapes that differ from the best plans' in little, while they are faster.

        Few shapes of a layout are looked into before; here are those with the same devices on a
        stage of each sort, and other micro-batches, schedules and depths.
        """
        for _ in range(self.limits.near_rounds):
            best = sorted(self._outcomes.values(), key=rank)
            shapes: dict[tuple[object, ...], PipelineShape] = {}
            for outcome in best:
                shapes.setdefault(_sorts(outcome.decision.shape), outcome.decision.shape)
            for shape in islice(shapes.values(), self.limits.near_sorts):
                self._look_beside(shape)
            if not best or min(self._outcomes.values(), key=rank) is best[0]:
                return

    def _look_beside(self, shape: PipelineShape) -> None:
        """Good plans of the shapes with stages of the same sorts that have the best estimates."""
        before = self._passes
        numbers = [n for n in self._near(shape) if n not in self._looked]
        each = ((self._estimate(self._shapes[n]), n) for n in numbers[: self.limits.near])
        heuristic_shapes = sorted((s, n) for s, n in each if s is not None)
        for estimated_s, number in heuristic_shapes[: self.limits.near_looked]:
            if self._passes - before > self.limits.near_passes:
                return
            if estimated_s <= self._incumbent_value * ESTIMATE_WITHIN:
                self._look_into(number)

    def _near(self, shape: PipelineShape) -> list[int]:
        """Shapes whose stages are of the same sorts, the roughly fastest first."""
        sorts = _sorts(shape)
        better = (n for n, bound in enumerate(self._bounds) if bound < self._incumbent_value)
        return sorted((n for n in better if _sorts(self._shapes[n]) == sorts), key=self._rough)

    def _prove(self) -> tuple[float, bool]:
        """Enumerate small shapes by growing bound; what is proven, and whether all of it is."""
        rest = float("inf") if self.space.complete else self._floor.global_bound_s()
        opened = float("inf")
        order = sorted(range(len(self._shapes)), key=lambda n: (self._bounds[n], n))
        for number in order:
            bound = self._bounds[number]
            if bound >= self._incumbent_value * (1 - ROUNDING):
                break
            self._progress(number, len(order), self._incumbent_value)
            if not self._enumerate(self._shapes[number]):
                opened = bound
                break
        least = min(rest, opened)
        proven = least >= self._incumbent_value * (1 - ROUNDING)
        return (self._incumbent_value if proven else least), proven

    def _enumerate(self, shape: PipelineShape) -> bool:
        """Simulate every plan of a shape that may be the best; False if there are too many."""
        tables, limits = self._tables(shape), self.limits
        count = plan_count(shape, tables)
        if count > limits.enumerated_shape or self._enumerated + count > limits.enumerated:
            return False
        self._enumerated += count
        budgets = self._budgets(shape)
        for boundaries in all_boundaries(len(self.layer_classes), shape.positions) if count else ():
            self._check_deadline()
            for bound, decision in bounded_stage_plans(
                shape, boundaries, tables, budgets, self._incumbent_value
            ):
                if bound >= self._incumbent_value * (1 - ROUNDING):
                    break
                done = self.evaluator
                if done.count >= limits.simulated or done.tries >= limits.tries:
                    return False
                self._try(decision)
        return True


def _layout(shape: PipelineShape) -> tuple[object, ...]:
    """The devices of every stage, whatever samples they take."""
    return tuple((p.group, p.first, p.devices) for place in shape.places for p in place)


def _sorts(shape: PipelineShape) -> tuple[object, ...]:
    """The devices of a stage of each sort, in the order of the pipeline."""
    stages = (tuple((p.group, p.devices) for p in place) for place in shape.places)
    return tuple(dict.fromkeys(stages))
