"""The largest batch or sequence that fits, and the fastest plan at it.

Whether a size fits is asked of the same search, ended at the first plan that does; the sizes that
are asked for are those of :mod:`largest_size`. A batch goes up in multiples of all devices
(times the grain), then of fewer and fewer of them: what a plan divides a batch by divides the
number of devices that it uses. A sequence goes up in multiples of its grain.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

from ...planner.search.largest_size import MOST, Bracket, finer_steps, largest_fitting
from ...spec.errors import InfeasibleError
from ...spec.report.report import Assumption, Largest, ObjectiveResult, Report
from ..problem.objective import sequence_limits
from ..problem.resolve import Problem

PROBE_SHARE = 0.5
"""The part of a deadline that finding the size may take; the rest is for the plan at it."""
SearchOne = Callable[[Problem, float | None], Report]
FitError = Callable[[Problem, float | None], InfeasibleError | None]
What = Literal["global_batch", "seq_len"]


class _Asked(NamedTuple):
    """What was asked of sizes: the bracket, the errors of those that do not fit, if time was up."""

    bracket: Bracket
    errors: dict[int, InfeasibleError]
    late: bool


def search_largest(
    problem: Problem, search_one: SearchOne, fit_error: FitError, deadline_s: float | None = None
) -> Report:
    """The report of the fastest plan at the largest size that fits.

    Args:
        problem: whose goal is a largest size.
        search_one: the best plan of a problem of known size, within seconds.
        fit_error: why no plan of such a problem fits, looked for within seconds; None if one does.
        deadline_s: for all of it.

    Raises:
        InfeasibleError: not even the grain fits.
        InputError: the model takes no such sequence.
    """
    start_s = time.monotonic()
    what: What = "global_batch" if problem.goal.objective == "largest-batch" else "seq_len"
    least, most = 1, MOST
    if what == "seq_len":
        least, most = sequence_limits(problem.model, problem.goal)
    asked = _ask(problem, what, (least, most), fit_error, deadline_s)
    size = asked.bracket.size
    if size < least:
        raise asked.errors[min(asked.errors)]
    left_s = None if deadline_s is None else max(0.0, deadline_s + start_s - time.monotonic())
    report = search_one(_sized(problem, what, size), left_s)
    return _told(report, problem, what, asked)


def _ask(
    problem: Problem,
    what: What,
    limits: tuple[int, int],
    fit_error: FitError,
    deadline_s: float | None,
) -> _Asked:
    """Ask sizes until the largest is found, or time is up: then none beyond is taken to fit."""
    until_s = None if deadline_s is None else time.monotonic() + deadline_s * PROBE_SHARE
    errors: dict[int, InfeasibleError] = {}
    late = False

    def fits(size: int) -> bool:
        nonlocal late
        if size < limits[0]:  # too short for the model, not too large
            return True
        left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        late = late or left_s == 0.0
        if late and any(n not in errors for n in seen):
            return False
        seen.append(size)
        error = fit_error(_sized(problem, what, size), left_s)
        if error is not None:
            errors[size] = error
        return error is None

    seen: list[int] = []
    begin = getattr(problem.workload, what)
    bracket = largest_fitting(fits, _steps(problem, what), limits[1], begin)
    tried = {size: ok for size, ok in bracket.tried.items() if size in seen}
    return _Asked(replace(bracket, tried=tried), errors, late)


def _steps(problem: Problem, what: What) -> list[int]:
    grain = problem.goal.grain
    if what == "seq_len":
        return [grain]
    return finer_steps(problem.cluster.device_count, grain)


def _sized(problem: Problem, what: What, size: int) -> Problem:
    if what == "seq_len":
        return problem.sized(seq_len=size)
    return problem.sized(global_batch=size)


def _told(report: Report, problem: Problem, what: What, asked: _Asked) -> Report:
    """The report with how the size was found."""
    bracket, beyond = asked.bracket, asked.bracket.beyond
    error = None if beyond is None else asked.errors.get(beyond)
    proven = error is not None and error.proven
    limited: Literal["memory", "model", "deadline"] = "memory" if error else "model"
    if asked.late:
        limited = "deadline"
    largest = Largest(
        what=what,
        size=bracket.size,
        grain=problem.goal.grain,
        beyond=beyond if error else None,
        beyond_proven=proven,
        limited_by=limited,
        tried=[{"size": size, "fits": ok} for size, ok in sorted(bracket.tried.items())],
    )
    result = ObjectiveResult(
        name=problem.goal.objective,
        unit="samples a step" if what == "global_batch" else "tokens a sample",
        value=float(bracket.size),
        bound=float(bracket.size) if proven or limited == "model" else None,
    )
    if report.search is None:
        raise ValueError("a report of no search")
    search = replace(report.search, objective=result, largest=largest)
    note = Assumption(path=f"workload.{what}", value=bracket.size, why=_why(largest))
    return replace(report, search=search, assumptions=(*report.assumptions, note))


def _why(found: Largest) -> str:
    if found.limited_by == "model":
        return "the largest that the model takes; it fits"
    if found.limited_by == "deadline":
        return "the largest found before the deadline"
    sure = "proven" if found.beyond_proven else "none found in the work allowed"
    return f"the largest multiple of {found.grain} that fits; {found.beyond} does not ({sure})"
