"""Searches of smaller aim: any feasible plan, or plans of one shape."""

from __future__ import annotations

from typing import Protocol

from ...spec.errors import InfeasibleError
from ..bounds.shape_bounds import ShapeBounds
from ..candidates.evaluator import Outcome
from ..heuristics.heuristic import Heuristic
from ..space.pipeline_shape import PipelineShape
from .branch_and_bound import BranchAndBound
from .incumbents import DeadlineError, Incumbents
from .roles import SearchHeuristic, StartHeuristic
from .work_limits import Limits, Quota

PROBE = Limits(
    heuristic_shapes=8,
    proof=Quota(enumerated=400_000, tries=4000, simulated=1000),
    rest=Quota(enumerated=100_000, tries=400, simulated=100),
    smaller_requests=False,
)
"""Work of a feasibility probe: small spaces whole, and the min-memory plans of others."""


class SearchParts(Protocol):
    """Parts of a search that may be run apart."""

    @property
    def bounds(self) -> ShapeBounds:
        """Tables and bounds of shapes."""
        ...

    @property
    def incumbents(self) -> Incumbents:
        """Plans tried."""
        ...

    @property
    def engine(self) -> BranchAndBound:
        """The whole search."""
        ...

    @property
    def start(self) -> StartHeuristic:
        """Search for any plan that fits."""
        ...

    @property
    def least_memory(self) -> SearchHeuristic:
        """Search for a plan that fits in the shapes of least memory."""
        ...

    @property
    def likely(self) -> Heuristic:
        """Search for good plans of one shape."""
        ...


class FeasibilityProbe:
    """Search up to the first feasible plan."""

    def __init__(self, parts: SearchParts) -> None:
        self._parts = parts
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

    def __init__(self, parts: SearchParts) -> None:
        self._parts = parts

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
