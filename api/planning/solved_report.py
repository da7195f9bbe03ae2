"""The report of a problem: solved, with the answer for the nearest common stack beside it."""

from __future__ import annotations

import time

from ...planner.solve.options import SolveOptions
from ...planner.solve.problem import Problem
from ...planner.solve.solve import solve
from ...spec.report.report import Report, StackAnswer
from .common_stack import common_stack_answer, stack_answer
from .report import solution_report


def solved_report(problem: Problem, options: SolveOptions, free: Problem | None = None) -> Report:
    """Solve a problem, and report.

    Args:
        problem: what is asked.
        options: of the search.
        free: the same question without a framework's limits, answered beside it; None: the nearest
            common stack is.

    Raises:
        InfeasibleError: nothing fits; it names the smallest changes that do.
        InputError: the model takes no sequence of the length in question.
        KeyboardInterrupt: Ctrl-C before any plan was found.
    """
    start_s = time.monotonic()
    solution = solve(problem, options)
    left_s = None
    if options.deadline_s is not None:
        left_s = options.deadline_s - (time.monotonic() - start_s)
    is_early = solution.search.stopped_by == "deadline"
    try:
        common = None if is_early else _beside(problem, options, left_s, free)
    except KeyboardInterrupt:  # the answer is there without it
        common = None
    return solution_report(problem, solution, options.risk, common)


def _beside(
    problem: Problem, options: SolveOptions, left_s: float | None, free: Problem | None
) -> StackAnswer | None:
    if free is None:
        return common_stack_answer(problem, options, left_s)
    if not problem.is_single_search or (left_s is not None and left_s <= 0):
        return None
    return stack_answer(free, options, left_s)
