"""Search over values of the whole program: one search of layers for each, against the best so far.

The values are an axis outside the search of layers. Each combination has bounds of its own, and is
left as soon as they pass the best plan of those before it; most are before a plan of theirs is
simulated. A question without such values is one search.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...spec.errors import InfeasibleError
from ...spec.plan.plan import Plan
from ...spec.report.report import Alternative, Prediction, SearchResult
from ..relaxation.lp_solver import has_solver
from ..search.branch_and_bound import BranchAndBound
from ..search.feasibility_probe import SearchParts
from ..search.result import SolveResult, StoppedBy
from ..space.program_options import program_options
from .alternatives import lost_text, prediction_with_cost, ranking
from .engine import make_search
from .garbage_collection import garbage_collection_paused
from .options import SolveOptions
from .problem import Problem
from .single_group import single_group_solution
from .solution import Solution


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


class _Searched(NamedTuple):
    """A search with some values; ``result`` has no outcomes if another was better."""

    problem: Problem
    parts: SearchParts
    result: SolveResult

    @property
    def engine(self) -> BranchAndBound:
        return self.parts.engine

    @property
    def value(self) -> float:
        """Objective of its best plan; infinite without one."""
        outcomes = self.result.outcomes
        return self.engine.value(outcomes[0]) if outcomes else float("inf")


class ProgramSearch:
    """The searches of a problem over one device group.

    ``interrupted``: True after Ctrl-C; ``tries``: simulations begun.
    """

    def __init__(self, problem: Problem, options: SolveOptions) -> None:
        self._problem = problem
        self._options = options
        self._engine: BranchAndBound | None = None
        self._before = 0
        self.interrupted = False

    @property
    def tries(self) -> int:
        """Simulations begun so far."""
        return self._before + (0 if self._engine is None else self._engine.evaluator.tries)

    def solution(self) -> Solution:
        """The best plan over all values.

        Raises:
            InfeasibleError: nothing fits.
        """
        searched = self._searched()
        if len(searched) == 1:
            only = searched[0]
            return single_group_solution(only.problem, self._options, only.parts, only.result)
        chosen, options = _simplest(searched, self._options)
        found = single_group_solution(chosen.problem, options, chosen.parts, chosen.result)
        self.interrupted = self.interrupted or chosen.engine.interrupted
        return _merged(found, chosen, searched, self._options)

    def plan(self) -> tuple[Plan, Prediction]:
        """The plan of :meth:`solution` alone.

        Raises:
            InfeasibleError: nothing fits.
        """
        chosen, options = _simplest(self._searched(), self._options)
        best = ranking(chosen.parts, chosen.result, options.simple_within).chosen
        return best.plan, prediction_with_cost(best, chosen.engine, self._problem.prices)

    def _searched(self) -> list[_Searched]:
        problems = list(with_program_values(self._problem, self._options))
        until_s = _until_s(self._options)
        searched: list[_Searched] = []
        errors: list[InfeasibleError] = []
        for number, problem in enumerate(problems):
            best_value = min((one.value for one in searched), default=float("inf"))
            options = _share(self._options, until_s, len(problems) - number)
            parts = make_search(problem, options, best_value)
            self._before, self._engine = self.tries, parts.engine
            try:
                searched.append(_Searched(problem, parts, _run(parts, best_value)))
            except InfeasibleError as error:
                errors.append(error)
            self.interrupted = parts.engine.interrupted
            if self.interrupted:
                break
        if not searched:
            raise errors[0] if errors else no_legal_values()
        return searched


def _until_s(options: SolveOptions) -> float | None:
    return None if options.deadline_s is None else time.monotonic() + options.deadline_s


def _share(options: SolveOptions, until_s: float | None, searches: int) -> SolveOptions:
    """Options of the next of so many searches, with its part of the time that is left."""
    if until_s is None:
        return options
    left_s = max(0.0, until_s - time.monotonic())
    return replace(options, deadline_s=left_s / searches)


def _run(parts: SearchParts, best_value: float) -> SolveResult:
    """The search, or nothing of it where its quick bounds pass another's best plan."""
    engine, start_s = parts.engine, time.monotonic()
    if best_value < float("inf"):
        nodes = engine.list_shapes()
        if nodes.queue.least >= best_value:
            bound_s = engine.bounds.seconds(best_value, nodes.shapes, None)
            seconds = time.monotonic() - start_s
            return SolveResult([], best_value, bound_s, "proof", 0, nodes.shapes, seconds)
    return engine.run()


def _simplest(searched: list[_Searched], options: SolveOptions) -> tuple[_Searched, SolveOptions]:
    """The search that answers, and options of its answer.

    Where a simple plan is preferred, that with the fewest values near the best one.
    """
    best = min(searched, key=lambda one: one.value)
    if options.simple_within is None or len(searched) == 1:
        return best, options
    limit = best.value * (1 + options.simple_within)
    near = [one for one in searched if one.value <= limit]
    chosen = min(near, key=lambda one: (len(one.problem.program), one.value))
    return chosen, replace(options, simple_within=limit / chosen.value - 1)


def _merged(
    solution: Solution, chosen: _Searched, searched: list[_Searched], options: SolveOptions
) -> Solution:
    """The answer with bound, space and best plans of all searches."""
    others = sorted((one for one in searched if one is not chosen), key=lambda one: one.value)
    beside = [_alternative(one, chosen, solution) for one in others if one.result.outcomes]
    faster = [other for other in beside if other.fastest]
    rest = [other for other in (*solution.alternatives, *beside) if not other.fastest]
    own = [other for other in solution.alternatives if other.fastest and not faster]
    return replace(
        solution,
        alternatives=tuple([*own, *faster[:1], *rest][: len(solution.alternatives) + options.top]),
        search=_merged_search(solution.search, chosen, searched),
    )


def _alternative(other: _Searched, chosen: _Searched, solution: Solution) -> Alternative:
    """The best plan with other values of the program."""
    outcome = other.result.outcomes[0]
    objective, workload = solution.search.objective, other.problem.workload
    factor = workload.tokens_per_step if objective.name == "cost" else 1  # its value is a token's
    share = other.value / (objective.value * factor) - 1
    prediction = prediction_with_cost(outcome, other.engine, chosen.problem.prices)
    text = lost_text(share, solution.prediction.breakdown_s, prediction.breakdown_s)
    if share < 0:
        words = (
            f"{value.name} {value.text_in_program(other.problem.program)}"
            for value, _ in other.problem.techniques.plannable
            if value.name in other.problem.program
        )
        text = f"{share:+.1%} with {', '.join(words)}"
    return Alternative(plan=outcome.plan, prediction=prediction, lost_by=text, fastest=share < 0)


def _merged_search(
    best: SearchResult, chosen: _Searched, searched: list[_Searched]
) -> SearchResult:
    """All searches as one, with the least of their bounds."""
    bound = min(one.result.lower_bound for one in searched)
    lower = bound / chosen.result.lower_bound if chosen.result.lower_bound else 1.0
    bound_s = min(one.result.lower_bound_s for one in searched)
    shapes = ((one.engine.space, one.result.shapes) for one in searched)
    return replace(
        best,
        seconds=round(sum(one.result.seconds for one in searched), 3),
        candidates=sum(one.engine.evaluator.count for one in searched),
        lower_bound_s=bound_s,
        gap=(1 + best.gap) / lower - 1 if lower else 0.0,
        stopped_by=stop_of(one.result for one in searched),
        space=merged_space(space.describe(listed) for space, listed in shapes),
        left_out=each_once(
            entry for one in searched for entry in one.engine.space.left_out(has_solver())
        ),
        objective=replace(best.objective, bound=(best.objective.bound or 0.0) * lower),
    )


def best_plan(problem: Problem, options: SolveOptions) -> tuple[Plan, Prediction]:
    """The plan of a problem over one device group, without what a solution says of its search.

    Raises:
        InfeasibleError: nothing fits.
    """
    with garbage_collection_paused():  # around the call, which lets go of the search at its end
        return ProgramSearch(problem, options).plan()
