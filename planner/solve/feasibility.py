"""Feasibility of a problem: the first feasible plan, or the obstacle."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ...spec.errors import InfeasibleError
from ..space.pins import Pin
from .device_groups import group_problems
from .engine import make_probe
from .garbage_collection import garbage_collection_paused
from .options import DEFAULT_OPTIONS, SolveOptions
from .problem import Problem


def fit_error(problem: Problem, options: SolveOptions = DEFAULT_OPTIONS) -> InfeasibleError | None:
    """Error if no plan fits any device group, else None."""
    errors = []
    for part in group_problems(problem):
        with garbage_collection_paused():
            error = make_probe(part, options).fit_error()
        if error is None:
            return None
        errors.append(error)
    return errors[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickProbe:
    """Quick feasibility checks of changed problems, until a point in time.

    Attributes:
        options: of the infeasible problem.
        until_s: when to stop, in seconds of the monotonic clock; None: never.
    """

    options: SolveOptions
    until_s: float | None

    def fits(self, problem: Problem, pins: tuple[Pin, ...]) -> bool:
        """Return whether a feasible plan is soon found."""
        left_s = None if self.until_s is None else self.until_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            return False
        options = replace(self.options, pins=pins, deadline_s=left_s)
        with garbage_collection_paused():
            return any(make_probe(part, options).fits_quickly() for part in group_problems(problem))
