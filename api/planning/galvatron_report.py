"""``plan --galvatron-profile``: the report of a search under Galvatron's costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...planner.solve.galvatron import solve_galvatron
from ...planner.solve.options import SolveOptions
from ...planner.solve.problem import Problem
from ...spec.report.report import Report
from .galvatron_job import galvatron_job
from .report import solution_report


def galvatron_report(problem: Problem, folder: str | Path, options: SolveOptions) -> Report:
    """The fastest plan under Galvatron's costs.

    Args:
        problem: what is planned.
        folder: output of Galvatron's profilers.
        options: only ``top`` and ``deadline_s`` apply.

    Raises:
        InputError: a problem that the costs do not cover, or an unusable profile.
        InfeasibleError: nothing fits.
    """
    solution = solve_galvatron(problem, galvatron_job(problem, folder), options)
    # No stack of ours is priced, and nothing measured of this machine enters.
    notes = (note for note in problem.assumptions if note.path.partition(".")[0] != "stack")
    return solution_report(replace(problem, assumptions=tuple(notes), measured=None), solution)
