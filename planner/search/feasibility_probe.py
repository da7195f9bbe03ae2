"""Searches that ask less: whether any plan fits, or what is best within one shape."""

from __future__ import annotations

from ...spec.errors import InfeasibleError
from ..candidates.evaluator import Decision, Outcome
from ..space.pipeline_shape import PipelineShape
from .branch_and_bound import BranchAndBound, DeadlineError, Limits, Quota

PROBE = Limits(
    heuristic_shapes=8,
    proof=Quota(enumerated=400_000, tries=4000, simulated=1000),
    rest=Quota(enumerated=100_000, tries=400, simulated=100),
)
"""Work of asking whether anything fits: small spaces whole, and the leanest plans of others."""


class FeasibilityProbe(BranchAndBound):
    """The same search, ended at the first plan that fits."""

    def fit_error(self) -> InfeasibleError | None:
        """Why no plan fits; None where one does. ``proven`` tells whether none can."""
        try:
            self.run()
        except _FeasibleFoundError:
            return None
        except InfeasibleError as error:
            if self.interrupted:
                raise KeyboardInterrupt from None
            return error
        raise RuntimeError("a search that meets no plan ends with an error")

    def fits_quickly(self) -> bool:
        """Whether a plan that fits is found among shapes that leave the fewest devices idle."""
        try:
            self._find_feasible()
        except _FeasibleFoundError:
            return True
        except DeadlineError:
            pass
        return False

    def _try_order(self, decision: Decision, cutoff_s: float = 0.0) -> Outcome | None:
        outcome = super()._try_order(decision, cutoff_s)
        if outcome is not None and outcome.feasible:
            raise _FeasibleFoundError
        return outcome


class SingleShapeSearch(BranchAndBound):
    """The same search, kept to one shape."""

    def seconds_within(self, shape: PipelineShape) -> list[float]:
        """Step times of the plans that are found in a shape and fit, least first."""
        self._layout_by_layout.search(
            shape, self._layer_tables(shape, usual=True), self._try_likely
        )
        return sorted(outcome.step_time_s for outcome in self._outcomes.values())


class _FeasibleFoundError(Exception):
    """A plan fits, and no more was asked."""
