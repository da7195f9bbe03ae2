"""Incumbents: decisions that a search simulates, the best of them kept, until it is time to end."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..bounds.shape_values import ShapeValues
from ..candidates.evaluator import Decision, Evaluator, Outcome
from ..candidates.tied_embeddings import tied_embedding_variants
from ..heuristics.layout_by_layout import LayoutByLayout, TryDecision
from ..heuristics.lp_rounding import round_relaxation
from ..space.pipeline_shape import PipelineShape
from .work_limits import Limits

ALTERNATIVES_WITHIN = 0.1
"""Plans that are slower than the best by more than this are no alternatives."""


class DeadlineError(Exception):
    """The deadline has passed."""


class Incumbents(ShapeValues):
    """What a search tried, and the best of it.

    Args:
        evaluator: of what is asked; simulates decisions once.
        limits: work limits.
    """

    def __init__(self, evaluator: Evaluator, limits: Limits) -> None:
        super().__init__(evaluator)
        self.limits = limits
        self._start = time.monotonic()
        self._incumbent_value = float("inf")  # in the objective's value
        self._outcomes: dict[Decision, Outcome] = {}
        self._nearest_infeasible: Outcome | None = None
        usual_layers = limits.heuristic_shapes * len(self.space.layers)
        self._more = max(1, limits.heuristic_layers // usual_layers)
        self._layout_by_layout = LayoutByLayout(
            self.space.layer_classes,
            self._live_budget,
            evaluator.rule.excess_bytes,
            limits.heuristic_layouts * self._more,
        )
        self._sought_feasible = False
        self._passes = 0
        self._relaxed = 0
        self._may_be_best: dict[PipelineShape, bool] = {}
        self._tried: Callable[[], None] = lambda: None

    @property
    def best_value(self) -> float:
        """The objective's value of the best plan until now; infinite before any fits."""
        return self._incumbent_value

    def _round_relaxation(self, shape: PipelineShape) -> bool:
        """Plans near the relaxed step of a shape in likely cuts, once a shape.

        Returns:
            Whether any plan in those cuts may be the best.
        """
        self._check_deadline()
        if shape in self._may_be_best or self._relaxed >= self.limits.relaxed:
            return self._may_be_best.get(shape, True)
        enough_s = self._best_s(shape)
        cut = (
            self._relaxations.relaxed(shape, enough_s)
            if self._relaxations.can_bound(shape)
            else None
        )
        self._may_be_best[shape] = cut is not None
        if cut is not None:
            self._relaxed += 1
            round_relaxation(cut, enough_s, self._try_likely, self.evaluator.rule.excess_bytes)
        return cut is not None

    def _try_uniform(self, shape: PipelineShape) -> None:
        """The uniform plan that the chains of a shape estimate to be the best."""
        decision = self._relaxations.uniform(shape)
        if decision is not None:
            self._try_chosen(decision)

    def _try_likely(self, decision: Decision, attempt: TryDecision | None = None) -> Outcome | None:
        """:meth:`_try_chosen`, until enough passes were simulated: long steps take seconds."""
        enough = self._outcomes and self._passes > self.limits.heuristic_passes
        if enough or (self._is_late and not self._sought_feasible):
            return None
        before = self.evaluator.count
        outcome = self._try_chosen(decision, attempt)
        self._passes += (self.evaluator.count - before) * decision.shape.passes
        return outcome

    def _try_chosen(self, decision: Decision, attempt: TryDecision | None = None) -> Outcome | None:
        """:meth:`_try` for strategies chosen layer by layer, of which a tie may unite two.

        Args:
            decision: the strategies.
            attempt: simulates a decision in place of :meth:`_try`.
        """
        attempt = attempt or self._try
        tried = [attempt(variant) for variant in tied_embedding_variants(decision, self.space)]
        found = [outcome for outcome in tried if outcome is not None]
        return min(found, key=lambda o: (max(0.0, o.excess_bytes), o.step_time_s), default=None)

    def _try(self, decision: Decision) -> Outcome | None:
        """Simulate a decision, in another order where it does not fit, and keep it if it does."""
        outcome = self._try_order(decision)
        other = self.space.gpipe_variant(decision.shape)
        if outcome is None or outcome.feasible or other is None:
            return outcome
        late = self._try_order(decision._replace(shape=other))
        return outcome if late is None or late.excess_bytes > outcome.excess_bytes else late

    def _try_order(self, decision: Decision, cutoff_s: float = 0.0) -> Outcome | None:
        """Simulate a decision, and keep it if it fits.

        ``cutoff_s``: plans that are no alternatives are of interest too, up to so many seconds.
        """
        self._check_deadline()
        outcome = self.evaluator(decision, max(cutoff_s, self._keep_s(decision.shape)))
        if outcome is not None and outcome.feasible:
            self._outcomes[decision] = outcome
            self._incumbent_value = min(self._incumbent_value, self.value(outcome))
        elif outcome is not None and (
            self._nearest_infeasible is None
            or outcome.excess_bytes < self._nearest_infeasible.excess_bytes
        ):
            self._nearest_infeasible = outcome
        self._tried()
        return outcome

    def _best_s(self, shape: PipelineShape) -> float:
        """Seconds with which a plan of ``shape`` is as good as the best."""
        return self._incumbent_value / self.objective.factor(shape)

    def _keep_s(self, shape: PipelineShape) -> float:
        """Plans that certainly take this long are of no interest, not even as alternatives."""
        enough = len(self._outcomes) >= self.limits.alternatives
        return self._best_s(shape) * (1 if enough else 1 + ALTERNATIVES_WITHIN)

    @property
    def _is_late(self) -> bool:
        deadline_s = self.limits.deadline_s
        return deadline_s is not None and time.monotonic() - self._start > deadline_s

    def _check_deadline(self) -> None:
        """End the search when it is time, if there is an answer or none was found in haste."""
        if (self._outcomes or self._sought_feasible) and self._is_late:
            raise DeadlineError
