"""The search: bound every shape, look for good plans in the likely ones, then prove.

1. Every legal pipeline shape gets a proven lower bound.
2. The likely shapes are searched for good plans: dynamic programming over layers and stages,
   simulated, the budget lowered where memory overflows.
3. Shapes are taken by growing bound. A small one is enumerated: its plans are simulated in the
   order of their own bounds until the next bound passes the best simulated time. A shape too
   large for that stays open, and the least bound of the open shapes is what is proven.

Limits are counts of work, so equal requests give equal plans; a deadline or Ctrl-C ends the
search early with the best plan so far and the bound as far as it is proven.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ..costmodel.simulate import Simulator
from ..spec.errors import InfeasibleError
from ..spec.units import format_bytes
from .bounds import ShapeBounds
from .candidates import Decision, Evaluator, Outcome
from .exhaustive import all_cuts, bounded_plans, plan_count
from .leanest import leanest
from .likely import LikelyPlans
from .options import OptionTable, OptionTables
from .space import Request, SearchSpace, Shape

ALTERNATIVES_WITHIN = 0.1
"""Plans that are slower than the best by more than this are no alternatives."""
LIKELY_WITHIN = 1.25
"""Shapes whose estimate is worse than the best time by this factor are not looked into."""
ROUNDING = 1e-12
"""Bounds within this relative distance of the best time count as passing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much work a search may do; ``deadline_s`` is the only limit in seconds."""

    alternatives: int = 8
    estimates: int = 1500
    likely: int = 32
    likely_alike: int = 4
    leanest: int = 16
    enumerated_shape: int = 200_000
    enumerated: int = 4_000_000
    simulated: int = 60_000
    deadline_s: float | None = None


@dataclass(slots=True)
class Found:
    """What a search ends with; ``outcomes`` are feasible, best first."""

    outcomes: list[Outcome]
    lower_bound_s: float
    stopped_by: Literal["proof", "work", "deadline"]
    simulated: int
    shapes: list[Shape]
    seconds: float
    nearest: Outcome | None = None
    progress: Callable[[str], None] | None = field(default=None, repr=False)


class Search:
    """One search for the best plan of a request.

    Args:
        request: what is asked.
        simulator: prices and simulates its plans.
        evaluator: simulates decisions once.
        limits: work limits.
        progress: called with (shapes seen, shapes in all, best seconds) now and then.
    """

    def __init__(
        self,
        request: Request,
        simulator: Simulator,
        evaluator: Evaluator,
        limits: Limits,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self.request = request
        self.space = SearchSpace(request)
        self.tables = OptionTables(simulator.lowering, simulator.pricer)
        self.evaluator = evaluator
        self.limits = limits
        self.pricer = simulator.pricer
        self._progress = progress or (lambda seen, total, best: None)
        self._start = time.monotonic()
        self._best = float("inf")
        self._outcomes: dict[Decision, Outcome] = {}
        self._nearest: Outcome | None = None
        self._bounds: dict[tuple[int, int, bool], ShapeBounds] = {}
        self.interrupted = False
        self._enumerated = 0

    def run(self) -> Found:
        """Search until proof, work limit, deadline or Ctrl-C.

        Raises:
            InfeasibleError: no plan fits, or no legal plan exists.
        """
        shapes = list(self.space.shapes())
        bounded = sorted(
            ((self._shape_bound(shape), number) for number, shape in enumerate(shapes)),
            key=lambda pair: pair,
        )
        lower_bound = bounded[0][0] if bounded else float("inf")
        proven = False
        try:
            self._look_in_likely(shapes, bounded)
            if not self._outcomes:
                self._look_at_leanest(shapes)
            lower_bound, proven = self._prove(shapes, bounded)
        except KeyboardInterrupt:
            self.interrupted = True
        except _DeadlineError:
            self.interrupted = True
        return self._found(shapes, lower_bound, proven)

    def _found(self, shapes: list[Shape], lower_bound: float, proven: bool) -> Found:
        outcomes = sorted(self._outcomes.values(), key=_rank)
        if not outcomes:
            raise self._infeasible(shapes)
        stopped: Literal["proof", "work", "deadline"] = "proof" if proven else "work"
        return Found(
            outcomes=outcomes,
            lower_bound_s=min(lower_bound, self._best),
            stopped_by="deadline" if self.interrupted else stopped,
            simulated=self.evaluator.count,
            shapes=shapes,
            seconds=time.monotonic() - self._start,
            nearest=self._nearest,
        )

    def _infeasible(self, shapes: list[Shape]) -> InfeasibleError:
        if not shapes:
            return InfeasibleError(
                "no legal plan: no stage width, micro-batch and strategy agree with the batch of "
                f"{self.request.workload.global_batch} and the pins"
            )
        if self._nearest is None:
            return InfeasibleError(
                "no legal plan: embedding and head share a weight, and no "
                "strategy of both agrees with the pins"
            )
        rows = self._nearest.simulation.memory
        worst = max(rows, key=self.evaluator.rule.excess_bytes)
        need = worst.reserved_bytes * self.evaluator.rule.margin
        return InfeasibleError(
            f"hbm of stage {worst.stage}: the smallest plan found needs {format_bytes(need)} of "
            f"{format_bytes(worst.capacity_bytes)} (over by "
            f"{format_bytes(need - worst.capacity_bytes)}); smallest change that fits: devices "
            f"with {format_bytes(need)} (--memory-gib {math.ceil(need / 2**30 * 10) / 10:.1f}), "
            "or more devices"
        )

    def _layer_tables(self, shape: Shape) -> list[OptionTable]:
        """Options of every layer for a shape, in order."""
        samples = self.request.workload.global_batch // shape.microbatches
        tied = self._tied(shape)
        place = (shape.ranks, samples, shape.microbatches)
        known: dict[tuple[int, tuple[int, ...] | None], OptionTable] = {}
        found = []
        for layer, kind in enumerate(self.space.kinds):
            key = (kind, tied.get(layer))
            if key not in known:
                strategies = self.space.options(kind, shape.ranks, samples)
                known[key] = self.tables.table(layer, strategies, *place, key[1])
            found.append(known[key])
        return found

    def _tied(self, shape: Shape) -> dict[int, tuple[int, ...]]:
        """Embedding and head that share a weight in one stage: the head carries both."""
        if not self.request.model.tie_embeddings or shape.stages > 1:
            return {}
        ends = [i for i, x in enumerate(self.space.layers) if x.kind in ("embedding", "head")]
        return {ends[0]: (), ends[-1]: (ends[0], ends[-1])}

    def _live_budget(self, shape: Shape) -> float:
        communicators = int(shape.stages * shape.ranks > 1) + (4 if shape.stages > 1 else 0)
        capacity = self.request.cluster.groups[0].memory.hbm_bytes
        stack = self.request.stack
        return self.evaluator.rule.live_budget_bytes(capacity, stack, communicators)

    def _shape_bounds(self, shape: Shape) -> ShapeBounds:
        key = (shape.ranks, shape.microbatches, bool(self._tied(shape)))
        if key not in self._bounds:
            tables = self._layer_tables(shape)
            counts: dict[int, tuple[int, OptionTable]] = {}
            for table in tables:
                counts[id(table)] = (counts.get(id(table), (0, table))[0] + 1, table)
            self._bounds[key] = ShapeBounds(list(counts.values()))
        return self._bounds[key]

    def _shape_bound(self, shape: Shape) -> float:
        bound = self._shape_bounds(shape).bound(shape, self._live_budget(shape))
        return bound + self.pricer.step_s

    def _look_in_likely(self, shapes: list[Shape], bounded: list[tuple[float, int]]) -> None:
        """Good plans from the shapes with the best estimates."""
        likely = LikelyPlans(self.space.kinds, self._live_budget)
        tried: Counter[tuple[int, int]] = Counter()
        for estimate, number in self._estimates(shapes, bounded):
            shape = shapes[number]
            self._check_deadline()
            self._progress(sum(tried.values()), len(shapes), self._best)
            if sum(tried.values()) >= self.limits.likely or estimate == float("inf"):
                break
            if self._outcomes and estimate > self._best * LIKELY_WITHIN:
                break
            if tried[shape.stages, shape.ranks] < self.limits.likely_alike:
                tried[shape.stages, shape.ranks] += 1
                likely.search(shape, self._layer_tables(shape), self._try)

    def _look_at_leanest(self, shapes: list[Shape]) -> None:
        """Plans with the least memory, until one fits: before it is said that none does."""
        plans = [leanest(shape, self._layer_tables(shape)) for shape in shapes]
        order = sorted(range(len(plans)), key=lambda n: (plans[n].fullest_bytes, n))
        for number in order[: self.limits.leanest]:
            outcome = self._try(plans[number].decision)
            if outcome is not None and outcome.feasible:
                return

    def _estimates(
        self, shapes: list[Shape], bounded: list[tuple[float, int]]
    ) -> list[tuple[float, int]]:
        """Estimates of the shapes with the least bounds, best first."""
        found = []
        for bound, number in bounded[: self.limits.estimates]:
            if bound == float("inf"):
                break
            shape = shapes[number]
            held = tuple(
                sum(shape.first_in_flight(s)) / shape.chunks for s in (0, shape.stages - 1)
            )
            budget = self._live_budget(shape)
            estimate = self._shape_bounds(shape).estimate(shape, budget, (held[0], held[1]))
            found.append((estimate, number))
        return sorted(found)

    def _try(self, decision: Decision) -> Outcome | None:
        """Simulate a decision and keep it if it is feasible."""
        self._check_deadline()
        outcome = self.evaluator(decision, self._keep_s)
        if outcome is None:
            return None
        if outcome.feasible:
            self._outcomes[decision] = outcome
            self._best = min(self._best, outcome.step_time_s)
        elif self._nearest is None or outcome.excess_bytes < self._nearest.excess_bytes:
            self._nearest = outcome
        return outcome

    @property
    def _keep_s(self) -> float:
        """Plans that certainly take this long are of no interest, not even as alternatives."""
        enough = len(self._outcomes) >= self.limits.alternatives
        return self._best * (1 if enough else 1 + ALTERNATIVES_WITHIN)

    def _prove(self, shapes: list[Shape], bounded: list[tuple[float, int]]) -> tuple[float, bool]:
        """Enumerate small shapes by growing bound; what is proven, and whether all of it is."""
        open_bound = float("inf")
        for done, (bound, number) in enumerate(bounded):
            if bound >= self._best * (1 - ROUNDING):
                break
            self._progress(done, len(shapes), self._best)
            if not self._enumerate(shapes[number]):
                open_bound = min(open_bound, bound)
        proven = open_bound >= self._best * (1 - ROUNDING)
        return (self._best if proven else open_bound), proven

    def _enumerate(self, shape: Shape) -> bool:
        """Simulate every plan of a shape that may be the best; False if there are too many."""
        tables = self._layer_tables(shape)
        count = plan_count(shape, tables)
        limits = self.limits
        if count > limits.enumerated_shape or self._enumerated + count > limits.enumerated:
            return False
        self._enumerated += count
        budget = self._live_budget(shape)
        for cuts in all_cuts(len(tables), shape.positions):
            for bound, decision in bounded_plans(shape, cuts, tables, budget, self._best):
                if bound >= self._best * (1 - ROUNDING):
                    break
                if self.evaluator.count >= limits.simulated:
                    return False
                self._try(decision)
        return True

    def _check_deadline(self) -> None:
        deadline_s = self.limits.deadline_s
        if deadline_s is None or not self._outcomes:
            return
        if time.monotonic() - self._start > deadline_s:
            raise _DeadlineError


class _DeadlineError(Exception):
    """The deadline has passed and there is a plan to answer with."""


def _rank(outcome: Outcome) -> tuple[float, int, str]:
    """Fastest first; among equals the simplest, then by the plan's own bytes."""
    return (outcome.step_time_s, outcome.distinct_strategies, outcome.plan.hash)
