"""The report of a problem: solved, with the answer for the nearest common stack beside it."""

from __future__ import annotations

import time

from ...planner.solve.options import SolveOptions
from ...planner.solve.problem import Problem
from ...planner.solve.solve import solve
from ...spec.report.report import Report
from .common_stack import common_stack_answer
from .report import solution_report


def solved_report(problem: Problem, options: SolveOptions) -> Report:
    """Solve a problem, and report.

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
        common = None if is_early else common_stack_answer(problem, options, left_s)
    except KeyboardInterrupt:  # the answer is there without it
        common = None
    return solution_report(problem, solution, options.risk, common)
