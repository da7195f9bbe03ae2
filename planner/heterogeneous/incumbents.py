"""Trials over several device groups: what a search simulates, and the best of it kept."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..candidates.evaluator import Decision, Evaluator, Outcome, PlanHashOrder
from ..candidates.tied_embeddings import tied_embedding_choices
from ..search.incumbents import ALTERNATIVES_WITHIN, DeadlineError
from .shape_costs import HeterogeneousCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class HeterogeneousLimits:
    """How much work a search may do; ``deadline_s`` is the only limit in seconds.

    ``estimates`` shapes are estimated, ``estimates_alike`` of one layout of devices and schedule;
    ``heuristic_shapes`` are looked into, ``heuristic_shapes_alike`` of one layout, which together
    simulate
    ``heuristic_passes``. Beside the best plan of each of ``near_sorts`` sorts of shapes ``near``
    more
    are estimated and ``near_looked`` looked into, which together simulate ``near_passes``, again
    while they are faster, ``near_rounds`` times. The proof counts ``enumerated`` plans, begins
    ``tries`` and carries ``simulated`` to the end, of shapes of at most ``enumerated_shape`` plans.
    """

    alternatives: int = 8
    estimates: int = 600
    estimates_alike: int = 6
    heuristic_shapes: int = 32
    heuristic_shapes_alike: int = 3
    heuristic_passes: int = 6_000_000
    near: int = 48
    near_looked: int = 8
    near_rounds: int = 3
    near_sorts: int = 3
    near_passes: int = 1_000_000
    enumerated: int = 4_000_000
    enumerated_shape: int = 600_000
    tries: int = 40_000
    simulated: int = 10_000
    deadline_s: float | None = None


class HeterogeneousIncumbents(HeterogeneousCosts):
    """What a search tried, and the best of it.

    Args:
        evaluator: of what is asked; simulates decisions once.
        limits: work limits.
        best_s: a step time that is reached without mixing: only faster plans are wanted.
    """

    def __init__(self, evaluator: Evaluator, limits: HeterogeneousLimits, best_s: float) -> None:
        super().__init__(evaluator)
        self.limits = limits
        self._start = time.monotonic()
        self._outcomes: dict[Decision, Outcome] = {}
        self._nearest_infeasible: Outcome | None = None
        self._incumbent_value = best_s
        self._passes = 0

    @property
    def best_s(self) -> float:
        """The least step time known so far."""
        return self._incumbent_value

    def _try_chosen(self, decision: Decision) -> Outcome | None:
        """:meth:`_try` for strategies chosen layer by layer, of which a tie may unite two."""
        before = self.evaluator.count
        variants = tied_embedding_choices(
            decision, self._ties, self.request.model, self._legal(decision)
        )
        tried = [self._try(variant) for variant in variants]
        self._passes += (self.evaluator.count - before) * decision.shape.passes
        found = [outcome for outcome in tried if outcome is not None]
        return min(found, key=lambda o: (max(0.0, o.excess_bytes), o.step_time_s), default=None)

    def _try(self, decision: Decision) -> Outcome | None:
        """Simulate a decision, in another order where it does not fit, and keep it if it does."""
        outcome = self._try_order(decision)
        other = self.options.whole.gpipe_variant(decision.shape)
        if outcome is None or outcome.feasible or other is None:
            return outcome
        late = self._try_order(decision._replace(shape=other))
        return outcome if late is None or late.excess_bytes > outcome.excess_bytes else late

    def _try_order(self, decision: Decision) -> Outcome | None:
        self._check_deadline()
        enough = len(self._outcomes) >= self.limits.alternatives
        keep_s = self._incumbent_value * (1 if enough else 1 + ALTERNATIVES_WITHIN)
        outcome = self.evaluator(decision, keep_s)
        if outcome is None:
            return None
        if outcome.feasible:
            self._outcomes[decision] = outcome
            self._incumbent_value = min(self._incumbent_value, outcome.step_time_s)
        elif (
            self._nearest_infeasible is None
            or outcome.excess_bytes < self._nearest_infeasible.excess_bytes
        ):
            self._nearest_infeasible = outcome
        return outcome

    def _check_deadline(self) -> None:
        deadline_s = self.limits.deadline_s
        if deadline_s is not None and time.monotonic() - self._start > deadline_s:
            raise DeadlineError


def rank(outcome: Outcome) -> tuple[float, int, PlanHashOrder]:
    """Fastest first; among equals the simplest, then by the plan's own bytes."""
    return (outcome.step_time_s, outcome.distinct_strategies, outcome.hash_order)
