"""Incumbents: simulated decisions of a search, and the best of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..candidates.evaluator import Decision, Evaluator, Outcome, PlanHashOrder
from ..candidates.tied_embeddings import LayerLegality, tied_embedding_choices
from ..space.pipeline_shape import PipelineShape

ALTERNATIVES_WITHIN = 0.1
"""Plans that are slower than the best by more than this are no alternatives."""


class DeadlineError(Exception):
    """The deadline has passed."""


class Incumbents:
    """Feasible plans of a search, the best value, and the deadline.

    Args:
        evaluator: of the request; simulates decisions once.
        legality: legal strategies of a decision's layers.
        gpipe_variant: the shape with a schedule of other memory, if any.
        alternatives: plans kept beside the best.
        heuristic_passes: simulated passes after which likely plans are no longer tried.
        deadline_s: seconds after which a search ends; None: never.
        seeks_first: do not end, however late, before a feasible plan was sought.
        best_value: value to beat.

    ``on_trial`` is called after every trial with its outcome.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        legality: LayerLegality,
        gpipe_variant: Callable[[PipelineShape], PipelineShape | None],
        *,
        alternatives: int,
        heuristic_passes: float = float("inf"),
        deadline_s: float | None = None,
        seeks_first: bool = False,
        best_value: float = float("inf"),
    ) -> None:
        self.evaluator = evaluator
        self.objective = evaluator.request.objective
        self.legality = legality
        self.start_s = time.monotonic()
        self.best_value = best_value
        self.outcomes: dict[Decision, Outcome] = {}
        self.nearest_infeasible: Outcome | None = None
        self.passes = 0
        self.sought_feasible = not seeks_first
        self.on_trial: Callable[[Outcome | None], None] = lambda outcome: None
        self._gpipe_variant = gpipe_variant
        self._alternatives = alternatives
        self._heuristic_passes = heuristic_passes
        self._deadline_s = deadline_s

    def value(self, outcome: Outcome) -> float:
        """Objective of a simulated plan."""
        return outcome.step_time_s * self.objective.factor(outcome.decision.shape)

    def rank(self, outcome: Outcome) -> tuple[float, float, int, int, PlanHashOrder]:
        """Sort key, best first: value, speed, simplicity, even boundaries, plan hash."""
        ties = (outcome.distinct_strategies, outcome.unevenness, outcome.hash_order)
        return (self.value(outcome), outcome.step_time_s, *ties)

    def ranked(self) -> list[Outcome]:
        """All feasible plans, best first."""
        return sorted(self.outcomes.values(), key=self.rank)

    def best(self) -> Outcome | None:
        """Best plan so far."""
        return min(self.outcomes.values(), key=self.rank, default=None)

    def of_shape(self, shape: PipelineShape) -> list[Outcome]:
        """Feasible plans of a shape, in the order of trial."""
        return [o for o in self.outcomes.values() if o.decision.shape == shape]

    def fastest(self, shape: PipelineShape) -> Outcome | None:
        """Fastest plan of a shape so far."""
        return min(self.of_shape(shape), key=lambda o: o.step_time_s, default=None)

    def best_s(self, shape: PipelineShape) -> float:
        """Seconds at which a plan of ``shape`` equals the best."""
        return self.best_value / self.objective.factor(shape)

    def try_likely(
        self, decision: Decision, cutoff_s: float = 0.0, keeps_schedule: bool = False
    ) -> Outcome | None:
        """:meth:`try_layers` up to a number of simulated passes."""
        is_enough = self.outcomes and self.passes > self._heuristic_passes
        if is_enough or (self.is_late and not self.sought_feasible):
            return None
        before = self.evaluator.count
        outcome = self.try_layers(decision, cutoff_s, keeps_schedule)
        self.passes += (self.evaluator.count - before) * decision.shape.passes
        return outcome

    def try_layers(
        self, decision: Decision, cutoff_s: float = 0.0, keeps_schedule: bool = False
    ) -> Outcome | None:
        """Simulate layer-by-layer strategies, tied embeddings made equal.

        Args:
            decision: the strategies.
            cutoff_s: as :meth:`try_once`.
            keeps_schedule: try no other schedule if the plan does not fit.
        """
        legal = self.legality(decision)
        variants = tied_embedding_choices(decision, self.evaluator.request.model, legal)
        attempt = self.try_once if keeps_schedule else self.try_decision
        tried = [attempt(variant, cutoff_s) for variant in variants]
        outcomes = [outcome for outcome in tried if outcome is not None]
        return min(outcomes, key=lambda o: (max(0.0, o.excess_bytes), o.step_time_s), default=None)

    def try_decision(self, decision: Decision, cutoff_s: float = 0.0) -> Outcome | None:
        """Simulate a decision, under another schedule if it does not fit."""
        outcome = self.try_once(decision, cutoff_s)
        variant = self._gpipe_variant(decision.shape)
        if outcome is None or outcome.feasible or variant is None:
            return outcome
        other = self.try_once(decision._replace(shape=variant), cutoff_s)
        return outcome if other is None or other.excess_bytes > outcome.excess_bytes else other

    def try_once(self, decision: Decision, cutoff_s: float = 0.0) -> Outcome | None:
        """Simulate a decision, and keep it if it fits.

        Args:
            decision: the strategies.
            cutoff_s: limit of interest in seconds, for plans too slow to keep.
        """
        self.check_deadline()
        outcome = self.evaluator(decision, max(cutoff_s, self._keep_s(decision.shape)))
        if outcome is not None and outcome.feasible:
            self.outcomes[decision] = outcome
            self.best_value = min(self.best_value, self.value(outcome))
        elif outcome is not None and (
            self.nearest_infeasible is None
            or outcome.excess_bytes < self.nearest_infeasible.excess_bytes
        ):
            self.nearest_infeasible = outcome
        self.on_trial(outcome)
        return outcome

    def _keep_s(self, shape: PipelineShape) -> float:
        is_enough = len(self.outcomes) >= self._alternatives
        return self.best_s(shape) * (1 if is_enough else 1 + ALTERNATIVES_WITHIN)

    @property
    def is_late(self) -> bool:
        """True if the deadline has passed."""
        deadline_s = self._deadline_s
        return deadline_s is not None and time.monotonic() - self.start_s > deadline_s

    def check_deadline(self) -> None:
        """End a late search once a plan was found or sought.

        Raises:
            DeadlineError: the deadline has passed.
        """
        if (self.outcomes or self.sought_feasible) and self.is_late:
            raise DeadlineError
