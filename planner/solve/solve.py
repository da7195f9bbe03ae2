"""Solve a planning problem.

Several device groups are searched one by one, then jointly; a largest size is found by
feasibility, then solved at that size. Both solve parts of the problem here again.
"""

from __future__ import annotations

import time

from ...spec.errors import InfeasibleError
from ..search.branch_and_bound import BranchAndBound
from .device_groups import cluster_parts, merged_solution
from .feasibility import QuickProbe
from .garbage_collection import garbage_collection_paused
from .joint_search import solve_jointly
from .largest_size import find_largest_size, with_largest_size
from .nearest_feasible import with_feasible_changes
from .options import DEFAULT_OPTIONS, SolveOptions
from .problem import Problem
from .program_search import ProgramSearch
from .solution import Solution

CHANGE_SHARE, LEAST_TRIES = 3, 400
"""Simulations that look for changes, as a multiple of the search's; at least of so many."""


def solve(problem: Problem, options: SolveOptions = DEFAULT_OPTIONS) -> Solution:
    """Find the best plan of a problem, with the search's findings.

    Raises:
        InfeasibleError: nothing fits; it names the smallest changes that do.
        InputError: the model takes no sequence of the length in question.
        KeyboardInterrupt: Ctrl-C before any plan was found.
    """
    start_s = time.monotonic()
    search: ProgramSearch | None = None
    engine: BranchAndBound | None = None
    try:
        if problem.objective_choice.grain and not options.is_subproblem:
            return _solve_largest(problem, options)
        if len(problem.cluster.groups) > 1:
            return _solve_device_groups(problem, options)
        with garbage_collection_paused():
            search = ProgramSearch(problem, options)
            for engine in search.engines():
                try:
                    search.add(engine.run())
                except InfeasibleError as error:
                    search.fail(error)
            solution = search.solution()
            engine = search = None  # so that the end of the block collects them
        return solution
    except InfeasibleError as error:
        if search is not None and search.interrupted:
            raise KeyboardInterrupt from None
        if error.late or options.is_subproblem:
            raise
        infeasible = error
    until_s = None if options.deadline_s is None else start_s + options.deadline_s
    tries = 0 if search is None else search.tries
    probe = QuickProbe(options, until_s, CHANGE_SHARE * max(tries, LEAST_TRIES))
    raise with_feasible_changes(infeasible, problem, options.pins, probe)


def _solve_largest(problem: Problem, options: SolveOptions) -> Solution:
    start_s, deadline_s = time.monotonic(), options.deadline_s
    sizes = find_largest_size(problem, options)
    left_s = None if deadline_s is None else max(0.0, deadline_s + start_s - time.monotonic())
    solution = solve(sizes.problem, options.for_subproblem(left_s))
    return with_largest_size(solution, sizes)


def _solve_device_groups(problem: Problem, options: SolveOptions) -> Solution:
    """Best plan of several device groups: each part, then all together."""
    parts = cluster_parts(problem.cluster)
    deadline_s = options.deadline_s and options.deadline_s / (len(parts) + 1)
    part_options = options.for_subproblem(deadline_s)
    solutions: dict[str, Solution] = {}
    errors: list[InfeasibleError] = []
    for name, part in parts.items():
        try:
            solutions[name] = solve(problem.on_cluster(part), part_options)
        except InfeasibleError as error:
            errors.append(error)
    joint = solve_jointly(problem, part_options, solutions)
    if not solutions and (joint is None or joint.solution is None):
        raise errors[0]
    return merged_solution(problem, solutions, joint)
