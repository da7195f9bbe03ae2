"""Searches of smaller aim: any feasible plan, or plans of one shape."""

from __future__ import annotations

from ...spec.errors import InfeasibleError
from ..candidates.evaluator import Evaluator, Outcome
from ..space.pipeline_shape import PipelineShape
from .build import SingleGroupParts
from .incumbents import DeadlineError
from .work_limits import Limits, Quota

PROBE = Limits(
    heuristic_shapes=8,
    proof=Quota(enumerated=400_000, tries=4000, simulated=1000),
    rest=Quota(enumerated=100_000, tries=400, simulated=100),
    smaller_requests=False,
)
"""Work of a feasibility probe: small spaces whole, and the min-memory plans of others."""


class FeasibilityProbe:
    """Search up to the first feasible plan."""

    def __init__(self, evaluator: Evaluator, limits: Limits) -> None:
        self._parts = SingleGroupParts(evaluator, limits)
        self._parts.incumbents.on_trial = _end_where_it_fits

    def fit_error(self) -> InfeasibleError | None:
        """Error if no plan fits, else None; ``proven`` if none can."""
        engine = self._parts.engine
        try:
            engine.run()
        except _FeasibleFoundError:
            return None
        except InfeasibleError as error:
            if engine.interrupted:
                raise KeyboardInterrupt from None
            return error
        raise RuntimeError("a search that meets no plan ends with an error")

    def quick_plan(self, all_shapes: bool = False) -> Outcome | None:
        """A likely plan, None if none fits soon.

        Args:
            all_shapes: True to try the least memory of all shapes, not of those with the fewest
                idle devices alone.
        """
        engine, incumbents = self._parts.engine, self._parts.incumbents
        try:
            self._parts.start.run()
            if all_shapes:
                self._parts.least_memory.run(engine.list_shapes())
        except _FeasibleFoundError:
            pass
        except DeadlineError:
            return None
        first = incumbents.best()
        if first is not None:
            incumbents.on_trial = lambda outcome: None
            self._parts.likely.search(first.decision.shape, incumbents.try_likely)
        return incumbents.best()

    @property
    def tries(self) -> int:
        """Simulations begun."""
        return self._parts.incumbents.evaluator.tries

    def value(self, outcome: Outcome) -> float:
        """Objective of a plan."""
        return self._parts.incumbents.value(outcome)


class SingleShapeSearch:
    """Search for good plans of one shape."""

    def __init__(self, evaluator: Evaluator, limits: Limits) -> None:
        self._parts = SingleGroupParts(evaluator, limits)

    def seconds_within(self, shape: PipelineShape) -> list[float]:
        """Step times of feasible plans found in a shape, least first."""
        incumbents = self._parts.incumbents
        self._parts.likely.search(shape, incumbents.try_likely)
        return sorted(outcome.step_time_s for outcome in incumbents.outcomes.values())


class _FeasibleFoundError(Exception):
    """End of a probe: a plan fits."""


def _end_where_it_fits(outcome: Outcome | None) -> None:
    if outcome is not None and outcome.feasible:
        raise _FeasibleFoundError
