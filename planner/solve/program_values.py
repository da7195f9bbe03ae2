"""Values of whole programs in problems, and what their searches have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...spec.errors import InfeasibleError
from ..search.result import SolveResult, StoppedBy
from ..space.program_options import program_options
from .options import SolveOptions
from .problem import Problem


def with_program_values(problem: Problem, options: SolveOptions) -> Iterator[Problem]:
    """The problem with each legal combination of values, those with the fewest first."""
    for values in program_options(
        problem.techniques, problem.place, options.pins, options.executable
    ):
        yield replace(problem, program=values)


def no_legal_values() -> InfeasibleError:
    """Error of a question whose pins leave no values of the whole program."""
    what = "no legal plan: no values of the whole program agree with pins, stack and devices"
    return InfeasibleError(what, proven=True)


def merged_space(spaces: Iterable[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Every value of each axis of some spaces."""
    merged: dict[str, list[Any]] = {}
    for space in spaces:
        for axis, values in space.items():
            merged[axis] = sorted({*merged.get(axis, []), *values})
    return dict(sorted(merged.items()))


def each_once(entries: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Entries without repetitions, in their order."""
    listed = list(entries)
    return [entry for n, entry in enumerate(listed) if entry not in listed[:n]]


def stop_of(results: Iterable[SolveResult]) -> StoppedBy:
    """What ended some searches: the first that is no proof."""
    return next((one.stopped_by for one in results if one.stopped_by != "proof"), "proof")
