"""Contract of primal heuristics and of their simulation."""

from __future__ import annotations

from typing import Protocol

from ..candidates.evaluator import Decision, Outcome
from ..space.pipeline_shape import PipelineShape


class TryDecision(Protocol):
    """Simulate a decision, and keep the plan if it is good.

    Returns None for plans of no interest, or when no more may be tried. Plans slower than all kept
    are of interest up to ``cutoff_s`` seconds.
    """

    def __call__(self, decision: Decision, cutoff_s: float = ..., /) -> Outcome | None:
        """The outcome of a decision."""
        ...


class Heuristic(Protocol):
    """A way to find good plans of one shape."""

    def search(self, shape: PipelineShape, attempt: TryDecision, /) -> None:
        """Try plans of a shape."""
        ...
