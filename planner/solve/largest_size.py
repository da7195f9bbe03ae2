"""Largest feasible batch or sequence.

Feasibility is asked of the same search, ended at the first feasible plan; sizes are those of
``planner.search.largest_size``. A batch grows in multiples of all devices (times the grain), then
of fewer and fewer: a plan's divisor of the batch divides its number of devices. A sequence grows
in multiples of its grain.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Literal

from ...spec.errors import InfeasibleError
from ...spec.limits import MAX_SAMPLES
from ...spec.report.report import Assumption, Largest, ObjectiveResult
from ..search.largest_size import Bracket, finer_steps, largest_fitting
from .feasibility import fit_error
from .options import SolveOptions
from .problem import Problem
from .sequence_limits import sequence_limits
from .solution import Solution

PROBE_SHARE = 0.5
"""The part of a deadline that finding the size may take; the rest is for the plan at it."""
SizeName = Literal["global_batch", "seq_len"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestSize:
    """Largest feasible size, and the way to it.

    Attributes:
        problem: the problem at that size.
        what: the size in question.
        bracket: the size, and the sizes tried.
        errors: of infeasible sizes.
        is_late: True if time was up before the end.
    """

    problem: Problem
    what: SizeName
    bracket: Bracket
    errors: dict[int, InfeasibleError]
    is_late: bool


@dataclass(slots=True, kw_only=True)
class _SizeProbe:
    """Feasibility of sizes; after the deadline no larger one counts as feasible."""

    problem: Problem
    options: SolveOptions
    what: SizeName
    least: int
    until_s: float | None
    tried: list[int] = field(default_factory=list)
    errors: dict[int, InfeasibleError] = field(default_factory=dict)
    is_late: bool = False

    def fits(self, size: int) -> bool:
        """Return whether some plan of this size fits."""
        if size < self.least:  # too short for the model, not too large
            return True
        left_s = None if self.until_s is None else max(0.0, self.until_s - time.monotonic())
        self.is_late = self.is_late or left_s == 0.0
        if self.is_late and any(n not in self.errors for n in self.tried):
            return False
        self.tried.append(size)
        options = replace(self.options, deadline_s=left_s)
        error = fit_error(_sized(self.problem, self.what, size), options)
        if error is not None:
            self.errors[size] = error
        return error is None


def find_largest_size(problem: Problem, options: SolveOptions) -> LargestSize:
    """Find the largest feasible size, within its share of the deadline.

    Raises:
        InfeasibleError: not even the grain fits.
        InputError: the model takes no such sequence.
    """
    what: SizeName = (
        "global_batch" if problem.objective_choice.objective == "largest-batch" else "seq_len"
    )
    least, most = 1, MAX_SAMPLES
    if what == "seq_len":
        least, most = sequence_limits(problem.model, problem.objective_choice)
    deadline_s = options.deadline_s
    until_s = None if deadline_s is None else time.monotonic() + deadline_s * PROBE_SHARE
    probe = _SizeProbe(problem=problem, options=options, what=what, least=least, until_s=until_s)
    initial = getattr(problem.workload, what)
    bracket = largest_fitting(probe.fits, _steps(problem, what), most, initial)
    if bracket.size < least:
        raise probe.errors[min(probe.errors)]
    tried = {size: fits for size, fits in bracket.tried.items() if size in probe.tried}
    return LargestSize(
        problem=_sized(problem, what, bracket.size),
        what=what,
        bracket=replace(bracket, tried=tried),
        errors=probe.errors,
        is_late=probe.is_late,
    )


def _steps(problem: Problem, what: SizeName) -> list[int]:
    grain = problem.objective_choice.grain
    if what == "seq_len":
        return [grain]
    return finer_steps(problem.cluster.device_count, grain)


def _sized(problem: Problem, what: SizeName, size: int) -> Problem:
    if what == "seq_len":
        return problem.sized(seq_len=size)
    return problem.sized(global_batch=size)


def with_largest_size(solution: Solution, sizes: LargestSize) -> Solution:
    """Solution at the largest size, with notes on the size."""
    choice, bracket, beyond = sizes.problem.objective_choice, sizes.bracket, sizes.bracket.beyond
    error = None if beyond is None else sizes.errors.get(beyond)
    proven = error is not None and error.proven
    limited: Literal["memory", "model", "deadline"] = "memory" if error else "model"
    if sizes.is_late:
        limited = "deadline"
    largest = Largest(
        what=sizes.what,
        size=bracket.size,
        grain=choice.grain,
        beyond=beyond if error else None,
        beyond_proven=proven,
        limited_by=limited,
        tried=[{"size": size, "fits": fits} for size, fits in sorted(bracket.tried.items())],
    )
    objective = ObjectiveResult(
        name=choice.objective,
        unit="samples a step" if sizes.what == "global_batch" else "tokens a sample",
        value=float(bracket.size),
        bound=float(bracket.size) if proven or limited == "model" else None,
    )
    note = Assumption(path=f"workload.{sizes.what}", value=bracket.size, why=_limit_text(largest))
    return replace(
        solution,
        search=replace(solution.search, objective=objective, largest=largest),
        notes=(*solution.notes, note),
    )


def _limit_text(largest: Largest) -> str:
    if largest.limited_by == "model":
        return "the largest that the model takes; it fits"
    if largest.limited_by == "deadline":
        return "the largest found before the deadline"
    sure = "proven" if largest.beyond_proven else "none found in the work allowed"
    return f"the largest multiple of {largest.grain} that fits; {largest.beyond} does not ({sure})"
