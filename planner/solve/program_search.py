"""Search over values of the whole program: one search of layers for each, against the best so far.

The values are an axis outside the search of layers. Each combination has bounds of its own, and is
left as soon as they pass the best plan of those before it; most are before a plan of theirs is
simulated. A question without such values is one search.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from ...spec.errors import InfeasibleError
from ...spec.plan.plan import Plan
from ...spec.report.report import Alternative, Prediction, SearchResult
from ..relaxation.lp_solver import has_solver
from ..search.branch_and_bound import BranchAndBound
from ..search.feasibility_probe import SearchParts
from ..search.result import SolveResult, StoppedBy
from ..space.program_options import program_options
from ..technique import OPEN, FoundPlan, TechniqueChoice
from .alternatives import lost_text, prediction_with_cost, ranking
from .engine import make_evaluator, make_search
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
    """The searches of a problem over one device group, each run by the caller.

    ``interrupted``: True after Ctrl-C; ``tries``: simulations begun.
    """

    def __init__(self, problem: Problem, options: SolveOptions) -> None:
        self._problem = problem
        self._options = options
        self._searched: list[_Searched] = []
        self._errors: list[InfeasibleError] = []
        self.interrupted = False
        self.tries = 0

    def engines(self) -> Iterator[BranchAndBound]:
        """Each search in turn; none whose quick bounds pass the best plan of those before it.

        Its result goes to :meth:`add`, or its error to :meth:`fail`, before the next.
        """
        problems = list(with_program_values(self._problem, self._options))
        start_s = time.monotonic()
        count = len(problems)
        opens = self._open_techniques()
        for number, problem in enumerate(chain(problems, self._improved(opens))):
            best_value = min((one.value for one in self._searched), default=float("inf"))
            options = _share(self._options, start_s, (number, count + len(opens)))
            parts = make_search(problem, options, best_value)
            self._current = problem, parts
            if best_value < float("inf") and parts.engine.list_shapes().queue.least >= best_value:
                self.add(_cut(parts.engine, best_value))
                continue
            yield parts.engine
            self.tries += parts.engine.evaluator.tries
            self.interrupted = parts.engine.interrupted
            if self.interrupted:
                return

    def _open_techniques(self) -> list[TechniqueChoice]:
        """Techniques of the program whose value pins leave to be chosen on whole plans."""
        opens = {pin.key for pin in self._options.pins if pin.value == OPEN}
        techniques = self._problem.techniques
        return [choice for value, choice in techniques.plannable if value.name in opens]

    def _improved(self, opens: list[TechniqueChoice]) -> Iterator[Problem]:
        """The problem with a better value for the best plan; its layers are searched once more."""
        for choice in opens:
            found = [one for one in self._searched if one.result.outcomes]
            if choice.improved is None or not found:
                continue
            best = min(found, key=lambda one: one.value)
            outcome, least = best.result.outcomes[0], best.value
            simulator, better = best.engine.evaluator.simulator, None
            for value in choice.improved(FoundPlan(outcome.plan, outcome.simulation, simulator)):
                program = {**best.problem.program, choice.name: value}
                problem = replace(best.problem, program=program)
                tried = make_evaluator(problem, self._options)(outcome.decision)
                if tried is not None and tried.feasible and best.engine.value(tried) < least:
                    least, better = best.engine.value(tried), problem
            if better is not None:
                yield better

    def add(self, result: SolveResult) -> None:
        """Keep the result of the search in turn."""
        self._searched.append(_Searched(*self._current, result))

    def fail(self, error: InfeasibleError) -> None:
        """Keep the error of the search in turn: with these values nothing fits."""
        self._errors.append(error)

    def solution(self) -> Solution:
        """The best plan over all values.

        Raises:
            InfeasibleError: nothing fits.
        """
        chosen, options = self._chosen()
        found = single_group_solution(chosen.problem, options, chosen.parts, chosen.result)
        if len(self._searched) == 1:
            return found
        self.interrupted = self.interrupted or chosen.engine.interrupted
        return _merged(found, chosen, self._searched, self._options)

    def plan(self) -> tuple[Plan, Prediction]:
        """The plan of :meth:`solution` alone.

        Raises:
            InfeasibleError: nothing fits.
        """
        chosen, options = self._chosen()
        best = ranking(chosen.parts, chosen.result, options.simple_within).chosen
        return best.plan, prediction_with_cost(best, chosen.engine, self._problem.prices)

    def _chosen(self) -> tuple[_Searched, SolveOptions]:
        if not any(one.result.outcomes for one in self._searched):
            raise self._errors[0] if self._errors else no_legal_values()
        return _simplest(self._searched, self._options)


def _share(options: SolveOptions, start_s: float, turn: tuple[int, int]) -> SolveOptions:
    """Options of a search by its turn among all, with its part of the time that is left."""
    number, count = turn
    if options.deadline_s is None or count == 1:
        return options
    left_s = max(0.0, options.deadline_s - (time.monotonic() - start_s))
    return replace(options, deadline_s=left_s / (count - number))


def _cut(engine: BranchAndBound, best_value: float) -> SolveResult:
    """The result of a search whose bounds pass another's best plan."""
    shapes = engine.list_shapes().shapes
    return SolveResult(
        outcomes=[],
        lower_bound=best_value,
        lower_bound_s=engine.bounds.seconds(best_value, shapes, None),
        stopped_by="proof",
        simulated=0,
        shapes=shapes,
        seconds=time.monotonic() - engine.incumbents.start_s,
    )


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
        return _best_plan(problem, options)


def _best_plan(problem: Problem, options: SolveOptions) -> tuple[Plan, Prediction]:
    search = ProgramSearch(problem, options)
    for engine in search.engines():
        try:
            search.add(engine.run())
        except InfeasibleError as error:
            search.fail(error)
    return search.plan()
