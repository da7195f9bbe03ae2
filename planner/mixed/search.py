"""The search over several device groups together: bound, look in likely shapes, prove.

As :mod:`..search`. Shapes whose stages are alike and whose devices take equal parts are looked
into first and with the same effort as if there were no others, so a plan is never slower than the
best of those. What is known to be reached without mixing (``best_s``) is a mark to beat.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..candidates import Decision, Evaluator, Outcome
from ..exhaustive import all_cuts
from ..search import Found
from ..shape import Shape
from ..tied_ends import tied_choices
from .costs import MixedCosts
from .estimates import Estimates
from .exhaustive import bounded_plans, plan_count
from .likely import MixedLikely
from .space import is_equal

ROUNDING = 1e-12
"""Bounds within this relative distance of the best time count as passing it."""
ALTERNATIVES_WITHIN = 0.1
MOST_LOOKED = 6
"""Shapes of which it is asked whether they have room, for each that is estimated."""
LIKELY_WITHIN = 1.3
"""Shapes whose rough time is worse than the best by this factor are not looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedLimits:
    """How much work a search may do; ``deadline_s`` is the only limit in seconds.

    ``estimates`` shapes are estimated, ``estimates_alike`` of one layout of devices and schedule;
    ``likely`` are looked into, ``likely_alike`` of one layout, which together simulate
    ``likely_passes``. The proof counts ``enumerated`` plans, begins ``tries`` and carries
    ``simulated`` to the end, of shapes of at most ``enumerated_shape`` plans.
    """

    alternatives: int = 8
    estimates: int = 600
    estimates_alike: int = 6
    likely: int = 32
    likely_alike: int = 3
    likely_passes: int = 6_000_000
    enumerated: int = 4_000_000
    enumerated_shape: int = 600_000
    tries: int = 40_000
    simulated: int = 10_000
    deadline_s: float | None = None


class MixedSearch(MixedCosts):
    """One search for the best plan over several device groups of a request.

    Args:
        evaluator: of what is asked; simulates decisions once.
        limits: work limits.
        progress: called with (shapes seen, shapes in all, best seconds) now and then.
        best_s: a step time that is reached without mixing: only faster plans are wanted.
        equal_only: keep to stages of one width whose devices take equal parts.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        limits: MixedLimits | None = None,
        progress: Callable[[int, int, float], None] | None = None,
        best_s: float = float("inf"),
        equal_only: bool = False,
    ) -> None:
        super().__init__(evaluator)
        self.limits = limits or MixedLimits()
        self._progress = progress or (lambda seen, total, best: None)
        self._start = time.monotonic()
        self._equal_only = equal_only
        self._estimates = Estimates(self.kinds)
        self._likely = MixedLikely(self.kinds, evaluator.rule.excess_bytes)
        self._outcomes: dict[Decision, Outcome] = {}
        self._nearest: Outcome | None = None
        self._best = best_s
        self._shapes: list[Shape] = []
        self._bounds: list[float] = []
        self._passes = self._enumerated = 0
        self.interrupted = False

    @property
    def best_s(self) -> float:
        """The least step time known so far."""
        return self._best

    def run(self) -> Found:
        """Search until proof, work limit, deadline or Ctrl-C; ``outcomes`` may be empty."""
        proven = late = False
        lower_bound = None
        try:
            self._list()
            equal = [n for n, shape in enumerate(self._shapes) if is_equal(shape)]
            self._look(equal)
            if not self._equal_only:
                self._look(range(len(self._shapes)))
            lower_bound, proven = self._prove()
        except KeyboardInterrupt:
            self.interrupted = True
        except _DeadlineError:
            late = True
        if lower_bound is None:
            lower_bound = self._floor.floor_s()
        return self._found(lower_bound, proven, late or self.interrupted)

    def _found(self, lower_bound: float, proven: bool, ended: bool) -> Found:
        stopped: Literal["proof", "work", "deadline"] = "proof" if proven else "work"
        return Found(
            outcomes=sorted(self._outcomes.values(), key=_rank),
            lower_bound=min(lower_bound, self._best),
            lower_bound_s=min(lower_bound, self._best),
            stopped_by="deadline" if ended else stopped,
            simulated=self.evaluator.count,
            shapes=self._shapes,
            seconds=time.monotonic() - self._start,
            nearest=self._nearest,
        )

    def _list(self) -> None:
        """All shapes with their proven bounds."""
        for shape in self.space.shapes():
            self._check_deadline()
            if self._equal_only and not is_equal(shape):
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
            self._check_deadline()
            known = self._stage_plan(shape)
            looked += 1
            if known is not None:
                seen[sort] += 1
                likely_s = self._estimates.step_s(shape, *known)
                found.append((likely_s, number))
        return sorted(found)

    def _look(self, numbers: Sequence[int]) -> None:
        """Good plans from the shapes with the best estimates."""
        tried: Counter[tuple[object, ...]] = Counter()
        before = self._passes
        for likely_s, number in self._estimated(numbers):
            shape = self._shapes[number]
            enough = self._outcomes and self._passes - before > self.limits.likely_passes
            if sum(tried.values()) >= self.limits.likely or enough:
                break
            # While nothing is known to fit, shapes that seem to have no room are looked into too.
            if likely_s > self._best * LIKELY_WITHIN:
                break
            layout = _layout(shape)
            known = self._stage_plan(shape)
            if known is None or tried[layout] >= self.limits.likely_alike:
                continue
            self._check_deadline()
            tried[layout] += 1
            self._progress(sum(tried.values()), len(self._shapes), self._best)
            self._likely.search(shape, known, self._try_chosen)

    def _prove(self) -> tuple[float, bool]:
        """Enumerate small shapes by growing bound; what is proven, and whether all of it is."""
        rest = float("inf") if self.space.complete else self._floor.floor_s()
        opened = float("inf")
        order = sorted(range(len(self._shapes)), key=lambda n: (self._bounds[n], n))
        for number in order:
            bound = self._bounds[number]
            if bound >= self._best * (1 - ROUNDING):
                break
            self._progress(number, len(order), self._best)
            if not self._enumerate(self._shapes[number]):
                opened = bound
                break
        least = min(rest, opened)
        proven = least >= self._best * (1 - ROUNDING)
        return (self._best if proven else least), proven

    def _enumerate(self, shape: Shape) -> bool:
        """Simulate every plan of a shape that may be the best; False if there are too many."""
        tables, limits = self._tables(shape), self.limits
        count = plan_count(shape, tables)
        if count > limits.enumerated_shape or self._enumerated + count > limits.enumerated:
            return False
        self._enumerated += count
        budgets = self._budgets(shape)
        for cuts in all_cuts(len(self.kinds), shape.positions) if count else ():
            self._check_deadline()
            for bound, decision in bounded_plans(shape, cuts, tables, budgets, self._best):
                if bound >= self._best * (1 - ROUNDING):
                    break
                done = self.evaluator
                if done.count >= limits.simulated or done.tries >= limits.tries:
                    return False
                self._try(decision)
        return True

    def _try_chosen(self, decision: Decision) -> Outcome | None:
        """:meth:`_try` for strategies chosen layer by layer, of which a tie may unite two."""
        before = self.evaluator.count
        variants = tied_choices(decision, self._ties, self.request.model, self._legal(decision))
        tried = [self._try(variant) for variant in variants]
        self._passes += (self.evaluator.count - before) * decision.shape.passes
        found = [outcome for outcome in tried if outcome is not None]
        return min(found, key=lambda o: (max(0.0, o.excess_bytes), o.step_time_s), default=None)

    def _try(self, decision: Decision) -> Outcome | None:
        """Simulate a decision, in another order where it does not fit, and keep it if it does."""
        outcome = self._try_order(decision)
        other = self.options.whole.other_order(decision.shape)
        if outcome is None or outcome.feasible or other is None:
            return outcome
        late = self._try_order(decision._replace(shape=other))
        return outcome if late is None or late.excess_bytes > outcome.excess_bytes else late

    def _try_order(self, decision: Decision) -> Outcome | None:
        self._check_deadline()
        enough = len(self._outcomes) >= self.limits.alternatives
        keep_s = self._best * (1 if enough else 1 + ALTERNATIVES_WITHIN)
        outcome = self.evaluator(decision, keep_s)
        if outcome is None:
            return None
        if outcome.feasible:
            self._outcomes[decision] = outcome
            self._best = min(self._best, outcome.step_time_s)
        elif self._nearest is None or outcome.excess_bytes < self._nearest.excess_bytes:
            self._nearest = outcome
        return outcome

    def _check_deadline(self) -> None:
        deadline_s = self.limits.deadline_s
        if deadline_s is not None and time.monotonic() - self._start > deadline_s:
            raise _DeadlineError


def _layout(shape: Shape) -> tuple[object, ...]:
    """The devices of every stage, whatever samples they take."""
    return tuple((p.group, p.first, p.devices) for place in shape.places for p in place)


class _DeadlineError(Exception):
    """The deadline has passed."""


def _rank(outcome: Outcome) -> tuple[float, int, str]:
    """Fastest first; among equals the simplest, then by the plan's own bytes."""
    return (outcome.step_time_s, outcome.distinct_strategies, outcome.plan.hash)
