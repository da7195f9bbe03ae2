"""Results of a search, final and intermediate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..candidates.evaluator import Outcome
from ..space.pipeline_shape import PipelineShape

StoppedBy = Literal["proof", "work", "deadline"]


@dataclass(slots=True)
class SolveResult:
    """Result of a search; ``outcomes`` are feasible, best first.

    ``lower_bound``: proven on every objective value; ``lower_bound_s``: on seconds.
    """

    outcomes: list[Outcome]
    lower_bound: float
    lower_bound_s: float
    stopped_by: StoppedBy
    simulated: int
    shapes: list[PipelineShape]
    seconds: float
    nearest: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntermediateResult:
    """Current result of a running search; fields as in :class:`SolveResult`."""

    outcome: Outcome
    value: float
    lower_bound: float
    lower_bound_s: float

    @property
    def gap(self) -> float:
        """Maximum gain of a better plan, as a fraction of the bound."""
        return self.value / self.lower_bound - 1 if self.lower_bound else 0.0
