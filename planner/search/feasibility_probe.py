"""Searches that ask less: whether any plan fits, or what is best within one shape."""

from __future__ import annotations

from ...spec.errors import InfeasibleError
from ..candidates.evaluator import Decision, Outcome
from ..space.pipeline_shape import Shape
from .branch_and_bound import DeadlineError, Limits, Quota, Search

PROBE = Limits(
    likely=8,
    proof=Quota(enumerated=400_000, tries=4000, simulated=1000),
    rest=Quota(enumerated=100_000, tries=400, simulated=100),
)
"""Work of asking whether anything fits: small spaces whole, and the leanest plans of others."""


class FirstFit(Search):
    """The same search, ended at the first plan that fits."""

    def fit_error(self) -> InfeasibleError | None:
        """Why no plan fits; None where one does. ``proven`` tells whether none can."""
        try:
            self.run()
        except _FoundError:
            return None
        except InfeasibleError as error:
            if self.interrupted:
                raise KeyboardInterrupt from None
            return error
        raise RuntimeError("a search that meets no plan ends with an error")

    def fits_in_haste(self) -> bool:
        """Whether a plan that fits is found among shapes that leave the fewest devices idle."""
        try:
            self._look_for_any()
        except _FoundError:
            return True
        except DeadlineError:
            pass
        return False

    def _try_order(self, decision: Decision, cutoff_s: float = 0.0) -> Outcome | None:
        outcome = super()._try_order(decision, cutoff_s)
        if outcome is not None and outcome.feasible:
            raise _FoundError
        return outcome


class OneShape(Search):
    """The same search, kept to one shape."""

    def seconds_within(self, shape: Shape) -> list[float]:
        """Step times of the plans that are found in a shape and fit, least first."""
        self._likely.search(shape, self._layer_tables(shape, usual=True), self._try_likely)
        return sorted(outcome.step_time_s for outcome in self._outcomes.values())


class _FoundError(Exception):
    """A plan fits, and no more was asked."""
