"""Feasibility of a problem: the first feasible plan, or the obstacle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ...costmodel.memory.feasibility import MemoryRule
from ...spec.errors import InfeasibleError
from ..candidates.evaluator import Outcome
from ..search.feasibility_probe import FeasibilityProbe
from ..space.pins import Pin
from .device_groups import group_problems
from .engine import make_probe
from .garbage_collection import garbage_collection_paused
from .options import DEFAULT_OPTIONS, SolveOptions
from .problem import Problem
from .program_search import with_program_values


def fit_error(problem: Problem, options: SolveOptions = DEFAULT_OPTIONS) -> InfeasibleError | None:
    """Error if no plan fits any device group, else None."""
    errors = []
    for part in _parts(problem, options):
        with garbage_collection_paused():
            error = make_probe(part, options).fit_error()
        if error is None:
            return None
        errors.append(error)
    return errors[0]


def _parts(problem: Problem, options: SolveOptions) -> Iterator[Problem]:
    """Each device group alone, with each combination of the program's values."""
    for part in group_problems(problem):
        yield from with_program_values(part, options)


class QuickPlan(NamedTuple):
    """A likely plan of a changed problem, and its predicted cost.

    ``cost``: of a step, in device seconds or the objective's currency. ``host_bytes``: needed of
    the hosts' memory by a device, with the margin for risk.
    """

    cost: float
    host_bytes: float


class QuickProbe:
    """Quick plans of changed problems, within a share of the first search's work.

    Args:
        options: of the infeasible problem.
        until_s: when to stop, in seconds of the monotonic clock; None: never.
        tries: simulations that all probes may begin.
    """

    def __init__(self, options: SolveOptions, until_s: float | None, tries: int) -> None:
        self._options = options
        self._until_s = until_s
        self._tries = tries

    @property
    def is_spent(self) -> bool:
        """True if nothing is planned any more."""
        return self._tries <= 0 or self._left_s() == 0

    def fits(self, problem: Problem, pins: tuple[Pin, ...]) -> bool:
        """Return whether a feasible plan is soon found."""
        return self.plan(problem, pins) is not None

    def plan(
        self, problem: Problem, pins: tuple[Pin, ...], all_shapes: bool = False
    ) -> QuickPlan | None:
        """Cheapest likely plan of any device group; None if none is soon found."""
        plans = []
        for part in _parts(problem, replace(self._options, pins=pins)):
            if self.is_spent:
                break
            options = replace(self._options, pins=pins, deadline_s=self._left_s())
            with garbage_collection_paused():
                probe = make_probe(part, options)
                outcome = probe.quick_plan(all_shapes)
            self._tries -= probe.tries
            if outcome is not None:
                plans.append(self._priced(part, probe, outcome))
        return min(plans, default=None)

    def _priced(self, part: Problem, probe: FeasibilityProbe, outcome: Outcome) -> QuickPlan:
        is_cost = part.objective_choice.objective == "cost"
        devices = 1 if is_cost else part.cluster.device_count
        rows = [row.reserved_bytes for row in outcome.simulation.memory if row.tier == "host"]
        margin = MemoryRule(self._options.risk).margin
        return QuickPlan(probe.value(outcome) * devices, max(rows, default=0) * margin)

    def _left_s(self) -> float | None:
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())
