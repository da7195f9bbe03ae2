"""Options of a solve: pins, limits, preferences and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...costmodel.memory.feasibility import DEFAULT_RISK
from ..search.branch_and_bound import BranchAndBound
from ..space.pins import Pin

ProgressCallback = Callable[[int, int, float], None]
SearchCallback = Callable[[BranchAndBound], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """Options of a solve.

    Attributes:
        pins: fixed decisions.
        top: number of alternatives to report.
        deadline_s: seconds after which the best plan so far is the answer; None: no limit.
        risk: accepted chance of running out of memory.
        executable: keep to plans of the bundled executor.
        simple_within: answers with the simplest plan within this fraction of the best's value;
            None: with the best.
        progress: called with (shapes seen, shapes in all, best value of the objective).
        watch: called after every trial of a single-group search; must change nothing.
        is_subproblem: True for a part of another problem: its sizes are final, and infeasibility
            leads to no search for changes.
    """

    pins: tuple[Pin, ...] = ()
    top: int = 3
    deadline_s: float | None = None
    risk: float = DEFAULT_RISK
    executable: bool = False
    simple_within: float | None = None
    progress: ProgressCallback | None = None
    watch: SearchCallback | None = None
    is_subproblem: bool = False

    def for_subproblem(self, deadline_s: float | None) -> SolveOptions:
        """Options for a part of the problem, with its time share."""
        return replace(self, deadline_s=deadline_s, is_subproblem=True)


DEFAULT_OPTIONS = SolveOptions()
