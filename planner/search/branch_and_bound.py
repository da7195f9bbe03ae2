"""The search: bound every shape, look for good plans in the likely ones, then prove.

1. Every legal pipeline shape gets a quick proven lower bound, and its exact one only when its
   turn comes: of a large model first that of its place, then that of its relaxed step, at last
   with the step's critical paths, until it is within a per cent or two of the best plan, or past
   the bound of a shape that stays open (:mod:`proof`).
2. The likely shapes are searched for good plans: dynamic programming over layers and stages,
   simulated, the budget lowered where memory overflows. Of a model of many layers these are
   shapes of the likeliest widths, then those with the least bounds; plans are made of their relaxed
   steps (:mod:`lp_rounding`), and layers are chosen by what chains of passes weigh
   (:mod:`uniform_plans`).
3. Shapes are taken by growing bound. A small one is enumerated: its plans are simulated in the
   order of their own bounds until the next bound passes the best simulated time. A shape too
   large for that stays open, and the least bound of the open shapes is what is proven. Of a small
   model the other shapes are looked into all the same (:mod:`proof`), the likely ones closer
   (:mod:`intensification`).

What is least is the objective's value of a plan: the seconds of its step times a factor that its
shape fixes (:mod:`objective`); bounds and estimates are compared in it.

Limits are counts of work, so equal requests give equal plans; a deadline or Ctrl-C ends the
search early with the best plan so far and the bound as far as it is proven. A search with a
deadline first looks for any plan that fits, among shapes that leave the fewest devices idle.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Literal

from ..candidates.evaluator import Evaluator
from ..candidates.infeasibility import infeasible_error
from ..heuristics.min_memory import min_memory
from ..space.search_space import PipelineShape
from .incumbents import DeadlineError as DeadlineError
from .intensification import ESTIMATE_WITHIN
from .node_queue import NodeQueue
from .proof import Bounding
from .result import IntermediateResult as IntermediateResult
from .result import SolveResult as SolveResult
from .work_limits import Limits as Limits
from .work_limits import Quota as Quota

ESTIMATED_WITHIN = 1.05
"""Large shapes are not looked into where chains of passes estimate more than this."""
LONG_STEP_PASSES = 200_000
"""Steps that take a good part of a second to simulate: in haste, others are tried first."""


class BranchAndBound(Bounding):
    """One search for the best plan of a request.

    Args:
        evaluator: of what is asked; simulates decisions once.
        limits: work limits.
        progress: called with (shapes seen, shapes in all, best seconds) now and then.
        watch: called after every trial; looks through :meth:`current_result` when it likes to.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        limits: Limits,
        progress: Callable[[int, int, float], None] | None = None,
        watch: Callable[[BranchAndBound], None] | None = None,
    ) -> None:
        super().__init__(evaluator, limits)
        if watch is not None:
            self._tried = lambda: watch(self)
        if progress is not None:
            self._progress = progress
        self._queue: NodeQueue | None = None
        self.interrupted = False

    def run(self) -> SolveResult:
        """Search until proof, work limit, deadline or Ctrl-C.

        Raises:
            InfeasibleError: no plan fits, no legal plan exists, or none was found in time.
        """
        proven = late = False
        lower_bound = None
        try:
            self._find_feasible()
            queue = self._build_queue()
            self._search_layouts()
            if self.space.is_large:
                self._round_relaxations()
                self._search_by_bound(queue)
            if not self._outcomes:
                self._try_min_memory(self._shapes, self.limits.min_memory)
            lower_bound, proven = self._prove(self._shapes, queue)
        except KeyboardInterrupt:
            self.interrupted = True
        except DeadlineError:
            late = True
        if not self._outcomes:
            any_shape = bool(self._shapes)
            raise infeasible_error(
                self.space, any_shape, self._nearest_infeasible, self.evaluator, late, proven
            )
        if lower_bound is None:
            lower_bound = self._current_bound()
        return self._found(lower_bound, proven, late or self.interrupted)

    def _found(self, lower_bound: float, proven: bool, ended: bool) -> SolveResult:
        outcomes = sorted(self._outcomes.values(), key=self.rank)
        lower_bound = min(lower_bound, self._incumbent_value)
        stopped: Literal["proof", "work", "deadline"] = "proof" if proven else "work"
        return SolveResult(
            outcomes=outcomes,
            lower_bound=lower_bound,
            lower_bound_s=self._seconds_bound(lower_bound, self._shapes, outcomes[0]),
            stopped_by="deadline" if ended else stopped,
            simulated=self.evaluator.count,
            shapes=self._shapes or [o.decision.shape for o in outcomes],
            seconds=time.monotonic() - self._start,
            nearest=self._nearest_infeasible,
        )

    def current_result(self) -> IntermediateResult | None:
        """The best plan until now with what is proven until now; None before any fits."""
        best = min(self._outcomes.values(), key=self.rank, default=None)
        if best is None:
            return None
        value = self.value(best)
        bound = min(self._current_bound(), value)
        bound_s = self._seconds_bound(bound, self._shapes, best)
        return IntermediateResult(
            outcome=best, value=value, lower_bound=bound, lower_bound_s=bound_s
        )

    def _current_bound(self) -> float:
        """A proven bound on every plan of the space where the search ended early."""
        least = self._floor_value() if self._queue is None else self._queue.least
        return max(least, self._proven_value)

    def _find_feasible(self) -> None:
        """Some plan that fits: an answer for a deadline, a mark for the rest of the search."""
        shapes = sorted(
            self.space.plausible(),
            key=lambda s: (s.passes > LONG_STEP_PASSES, self._quick_value(s), s),
        )
        for number, shape in enumerate(shapes):
            if self._outcomes or self._is_late:
                break
            self._progress(number, len(shapes), self._incumbent_value)
            if self._estimate(shape) < float("inf"):
                self._layout_by_layout.search(
                    shape, self._layer_tables(shape, usual=True), self._try_likely
                )
        if not self._outcomes:
            self._try_min_memory(shapes, self.limits.min_memory_first)
        self._sought_feasible = True
        self._check_deadline()

    def _build_queue(self) -> NodeQueue:
        """All shapes, listed and bounded quickly."""
        shapes, quick = [], []
        for number, shape in enumerate(self.space.shapes()):
            self._check_deadline()
            shapes.append(shape)
            quick.append((self._quick_value(shape), number))
        self._shapes = shapes
        levels = (self._aggregated_value, self._closed_chain_value) if self.space.is_large else ()
        self._queue = NodeQueue(quick, *levels, self._exact_bound)
        return self._queue

    def _aggregated_value(self, number: int) -> float:
        self._check_deadline()
        shape = self._shapes[number]
        return self._aggregated_bound(shape) * self.objective.factor(shape)

    def _closed_chain_value(self, number: int) -> float:
        """The bound of a shape that is not played yet: it puts the likely ones first."""
        self._check_deadline()
        shape = self._shapes[number]
        bound_s = self._shape_bound(
            shape, self._enough * self._best_s(shape), adds_critical_paths=False
        )
        return bound_s * self.objective.factor(shape)

    def _search_layouts(self) -> None:
        """Good plans from the shapes with the best estimates."""
        tried: Counter[tuple[int, int]] = Counter()
        limits, shapes = self.limits, self._shapes
        most = (
            limits.heuristic_shapes_large
            if self.space.is_large
            else limits.heuristic_shapes * self._more
        )
        self._estimated = self._estimates()
        for estimate, number in self._estimated:
            shape = shapes[number]
            self._check_deadline()
            self._progress(sum(tried.values()), len(shapes), self._incumbent_value)
            if sum(tried.values()) >= most or estimate == float("inf"):
                break
            if self._outcomes and estimate > self._incumbent_value * ESTIMATE_WITHIN:
                break
            if tried[shape.stages, shape.ranks] < self.limits.heuristic_shapes_alike * self._more:
                tried[shape.stages, shape.ranks] += 1
                self._layout_by_layout.search(
                    shape, self._layer_tables(shape, usual=True), self._try_likely
                )

    def _round_relaxations(self) -> None:
        """Good plans from the relaxed steps of shapes that are roughly the fastest.

        With a good plan at hand most other shapes need no bounds but those of their place.
        """
        limits = self.limits
        known = [n for n in self._roughest() if self._relaxations.can_bound(self._shapes[n])]
        aggregated = sorted((self._aggregated_estimate(n), n) for n in known)
        cut = sorted((self._cut_value(n), n) for _, n in aggregated[: limits.relaxed_cuts])
        for _, number in cut[: limits.relaxed_first]:
            self._round_relaxation(self._shapes[number])

    def _roughest(self) -> list[int]:
        """Shapes that are roughly the fastest of the widths with the best estimates, few alike.

        How wide stages are decides most of what their layers need and send. Twice as many stages
        of half the width hold what the chunks of a V do.
        """
        limits = self.limits
        widths = dict.fromkeys(self._shapes[number].ranks for _, number in self._estimated)
        alike: Counter[tuple[object, ...]] = Counter()
        places: dict[int, set[int]] = {}
        for ranks in list(widths)[: limits.rough_widths]:
            places |= {ranks: set(), ranks // 2: set()}
        found: list[int] = []
        for number in self._by_rough:
            shape = self._shapes[number]
            known = places.get(shape.ranks)
            if known is None:
                continue
            if len(known) < limits.rough_microbatches:
                known.add(shape.microbatches)
            key = (shape.ranks, shape.kind)
            if shape.microbatches in known and alike[key] < limits.rough_alike:
                alike[key] += 1
                found.append(number)
        return found

    def _aggregated_estimate(self, number: int) -> float:
        """The bound of a shape's place, with the schedule's bubble and uneven stages."""
        shape = self._shapes[number]
        factor = self._rough(shape) / self._quick_bound(shape)
        return max(self._aggregated_value(number), self._quick_value(shape)) * factor

    def _cut_value(self, number: int) -> float:
        """The least value of a shape in likely cuts, not played yet."""
        self._check_deadline()
        shape = self._shapes[number]
        if not self._relaxations.can_bound(shape):
            return float("inf")
        return self._relaxations.closed_chain_bound_s(shape) * self.objective.factor(shape)

    def _search_by_bound(self, queue: NodeQueue) -> None:
        """Good plans from the shapes with the least bounds, until those pass the best plan."""
        tried = 0
        for bound, number in queue:
            self._check_deadline()
            self._progress(tried, len(queue), self._incumbent_value)
            if (
                bound >= self._incumbent_value * self._enough
                or tried >= self.limits.heuristic_shapes_open * self._more
            ):
                break
            self._open_value = min(self._open_value, bound)
            shape = self._shapes[number]
            if not self._relaxations.can_bound(shape):
                continue
            tried += 1
            if self._round_relaxation(shape) and self._path_estimate(shape) < self._best_s(shape):
                self._try_uniform(shape)
                self._layout_by_layout.search(
                    shape, self._relaxations.tables(shape), self._try_likely
                )

    def _path_estimate(self, shape: PipelineShape) -> float:
        """What chains of passes estimate, less by as much as they may be wrong."""
        return self._relaxations.estimate(shape) / ESTIMATED_WITHIN

    def _try_min_memory(self, shapes: list[PipelineShape], most: int) -> None:
        """Plans with the least memory, until one fits: before it is said that none does."""
        plans = []
        for shape in shapes:
            self._check_deadline()
            plans.append(min_memory(shape, self._layer_tables(shape)))
        order = sorted(range(len(plans)), key=lambda n: (plans[n].peak_bytes, n))
        for number in order[:most]:
            outcome = self._try_chosen(plans[number].decision)
            if outcome is not None and outcome.feasible:
                return

    @cached_property
    def _by_rough(self) -> list[int]:
        """All shapes, the roughly fastest first."""
        factor = self.objective.factor
        rough = [self._rough(shape) * factor(shape) for shape in self._shapes]
        return sorted(range(len(rough)), key=lambda number: (rough[number], number))

    def _estimates(self) -> list[tuple[float, int]]:
        """Estimates of the shapes that are roughly the fastest, best first."""
        found: list[tuple[float, int]] = []
        for number in self._by_rough:
            if len(found) >= self.limits.estimates:
                break
            shape = self._shapes[number]
            if self._may_estimate(shape):
                self._check_deadline()
                found.append((self._estimate(shape) * self.objective.factor(shape), number))
        return sorted(found)
