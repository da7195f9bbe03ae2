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
SearchSized = Callable[[Problem, float | None], Report]
FitError = Callable[[Problem, float | None], InfeasibleError | None]
SizeName = Literal["global_batch", "seq_len"]


class _SizeSearch(NamedTuple):
    """What was asked of sizes: the bracket, the errors of those that do not fit, if time was up."""

    bracket: Bracket
    errors: dict[int, InfeasibleError]
    late: bool


def search_largest(
    problem: Problem, search_one: SearchSized, fit_error: FitError, deadline_s: float | None = None
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
    what: SizeName = (
        "global_batch" if problem.objective_choice.objective == "largest-batch" else "seq_len"
    )
    least, most = 1, MOST
    if what == "seq_len":
        least, most = sequence_limits(problem.model, problem.objective_choice)
    sizes = _find_size(problem, what, (least, most), fit_error, deadline_s)
    size = sizes.bracket.size
    if size < least:
        raise sizes.errors[min(sizes.errors)]
    left_s = None if deadline_s is None else max(0.0, deadline_s + start_s - time.monotonic())
    report = search_one(_sized(problem, what, size), left_s)
    return _report_with_largest(report, problem, what, sizes)


def _find_size(
    problem: Problem,
    what: SizeName,
    limits: tuple[int, int],
    fit_error: FitError,
    deadline_s: float | None,
) -> _SizeSearch:
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
    return _SizeSearch(replace(bracket, tried=tried), errors, late)


def _steps(problem: Problem, what: SizeName) -> list[int]:
    grain = problem.objective_choice.grain
    if what == "seq_len":
        return [grain]
    return finer_steps(problem.cluster.device_count, grain)


def _sized(problem: Problem, what: SizeName, size: int) -> Problem:
    if what == "seq_len":
        return problem.sized(seq_len=size)
    return problem.sized(global_batch=size)


def _report_with_largest(
    report: Report, problem: Problem, what: SizeName, sizes: _SizeSearch
) -> Report:
    """The report with how the size was found."""
    bracket, beyond = sizes.bracket, sizes.bracket.beyond
    error = None if beyond is None else sizes.errors.get(beyond)
    proven = error is not None and error.proven
    limited: Literal["memory", "model", "deadline"] = "memory" if error else "model"
    if sizes.late:
        limited = "deadline"
    largest = Largest(
        what=what,
        size=bracket.size,
        grain=problem.objective_choice.grain,
        beyond=beyond if error else None,
        beyond_proven=proven,
        limited_by=limited,
        tried=[{"size": size, "fits": ok} for size, ok in sorted(bracket.tried.items())],
    )
    result = ObjectiveResult(
        name=problem.objective_choice.objective,
        unit="samples a step" if what == "global_batch" else "tokens a sample",
        value=float(bracket.size),
        bound=float(bracket.size) if proven or limited == "model" else None,
    )
    if report.search is None:
        raise ValueError("a report of no search")
    search = replace(report.search, objective=result, largest=largest)
    note = Assumption(path=f"workload.{what}", value=bracket.size, why=_limit_text(largest))
    return replace(report, search=search, assumptions=(*report.assumptions, note))


def _limit_text(found: Largest) -> str:
    if found.limited_by == "model":
        return "the largest that the model takes; it fits"
    if found.limited_by == "deadline":
        return "the largest found before the deadline"
    sure = "proven" if found.beyond_proven else "none found in the work allowed"
    return f"the largest multiple of {found.grain} that fits; {found.beyond} does not ({sure})"
