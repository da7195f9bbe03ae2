"""What a search ends with, and what it would end with now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..candidates.evaluator import Outcome
from ..space.pipeline_shape import PipelineShape


@dataclass(slots=True)
class SolveResult:
    """What a search ends with; ``outcomes`` are feasible, best first.

    ``lower_bound`` is proven of the objective's value of every plan, ``lower_bound_s`` of its
    seconds.
    """

    outcomes: list[Outcome]
    lower_bound: float
    lower_bound_s: float
    stopped_by: Literal["proof", "work", "deadline"]
    simulated: int
    shapes: list[PipelineShape]
    seconds: float
    nearest: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntermediateResult:
    """What a search that still runs would end with now; as in :class:`SolveResult`."""

    outcome: Outcome
    value: float
    lower_bound: float
    lower_bound_s: float

    @property
    def gap(self) -> float:
        """How much better any plan may be, as a fraction of the bound."""
        return self.value / self.lower_bound - 1 if self.lower_bound else 0.0
