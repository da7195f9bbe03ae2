"""Reports: a plan simulated or searched for, with everything that was assumed."""

from __future__ import annotations

import gc
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from .. import __version__
from ..costmodel.explain import breakdown, predict, source_share
from ..costmodel.feasibility import DEFAULT_RISK, MemoryRule
from ..costmodel.library_memory import calibrated_stack
from ..costmodel.lowering import Lowering
from ..costmodel.prices import Pricer
from ..costmodel.simulate import Simulation, Simulator
from ..planner.candidates import Evaluator, Outcome
from ..planner.mixed.search import MixedLimits, MixedSearch
from ..planner.pins import Pin
from ..planner.search import Found, Limits, Search
from ..planner.space import Request
from ..spec.errors import InfeasibleError
from ..spec.measured import Measured
from ..spec.plan import Plan
from ..spec.profile import MachineProfile
from ..spec.report import Alternative, Assumption, Provenance, Report, SearchResult
from ..spec.stack import StackSpec
from .calibrations import measured_name
from .inputs import Problem
from .joined_search import Mixed, search_groups
from .simulators import simulator_for

TIE_WITHIN = 0.05
"""Plans whose times differ by less than this are told apart by neither model nor machine."""
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A report with the simulation behind it, for timelines."""

    report: Report
    simulation: Simulation
    simulator: Simulator


def memory_rule(risk: float | None) -> MemoryRule:
    """The rule for a typed risk; the usual one where none was typed."""
    return MemoryRule(DEFAULT_RISK if risk is None else risk)


def simulate_plan(
    plan: Plan,
    stack: StackSpec,
    measured: Measured | None,
    assumptions: tuple[Assumption, ...],
    risk: float = DEFAULT_RISK,
) -> Simulated:
    """Simulate one plan, whether it fits or not."""
    simulator = simulator_for(plan, measured, calibrated_stack(stack, measured))
    with no_garbage_collection():
        simulation = simulator.run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    report = Report(
        plan=plan,
        prediction=predict(plan, simulation, simulator, MemoryRule(risk).measured_by(measured)),
        assumptions=assumptions,
        source_share=source_share(simulation),
        provenance=_provenance(simulator.pricer, measured),
    )
    return Simulated(report=report, simulation=simulation, simulator=simulator)


def _provenance(pricer: Pricer, measured: Measured | None) -> Provenance:
    stack = pricer.stack
    versions = {
        "shardwright": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    tables = ["catalogue"]
    if isinstance(measured, MachineProfile):
        tables.append(f"profile {measured.measured_at}")
    choices = f"attention {stack.attention}, overlap {pricer.overlap}"
    return Provenance(
        stack=f"{stack.name} {stack.version} ({choices})",
        calibration=measured_name(measured),
        tables=tables,
        versions=versions,
    )


def evaluator_of(
    problem: Problem,
    pins: tuple[Pin, ...] = (),
    risk: float = DEFAULT_RISK,
    executable: bool = False,
) -> Evaluator:
    """What simulates decisions on a problem and judges their memory.

    Args:
        problem: what is asked.
        pins: decisions that are fixed.
        risk: accepted chance of running out of memory.
        executable: keep to what the bundled executor runs.
    """
    stack = calibrated_stack(problem.stack, problem.measured)
    request = Request(
        model=problem.model,
        cluster=problem.cluster,
        workload=problem.workload,
        stack=stack,
        pins=pins,
        executable=executable,
    )
    simulator = Simulator(
        Lowering(problem.model, problem.workload, stack), Pricer(problem.machine, stack)
    )
    return Evaluator(request, simulator, MemoryRule(risk).measured_by(problem.measured))


def search_plan(
    problem: Problem,
    pins: tuple[Pin, ...] = (),
    top: int = 3,
    deadline_s: float | None = None,
    risk: float = DEFAULT_RISK,
    executable: bool = False,
    progress: Progress | None = None,
) -> Report:
    """The best plan of a problem, with what else was found.

    Args:
        problem: what is asked.
        pins: decisions that are fixed.
        top: how many alternatives to show.
        deadline_s: stop after so many seconds with the best plan so far.
        risk: accepted chance of running out of memory.
        executable: keep to what the bundled executor runs.
        progress: called with (shapes seen, shapes in all, best seconds).

    Raises:
        InfeasibleError: nothing fits.
    """
    if len(problem.cluster.groups) > 1:
        each_s = deadline_s and deadline_s / (len(problem.cluster.groups) + 1)

        def search_one(alone: Problem) -> Report:
            return search_plan(alone, pins, top, each_s, risk, executable, progress)

        def search_together(best_s: float) -> Mixed:
            limits = MixedLimits(deadline_s=each_s, alternatives=max(8, top))
            evaluator = evaluator_of(problem, pins, risk, executable)
            return _search_mixed(problem, MixedSearch(evaluator, limits, progress, best_s), top)

        return search_groups(problem, search_one, search_together)
    evaluator = evaluator_of(problem, pins, risk, executable)
    simulator, rule = evaluator.simulator, evaluator.rule
    search = Search(evaluator, Limits(deadline_s=deadline_s, alternatives=max(8, top)), progress)
    found = _run(search)
    best = found.outcomes[0]
    return Report(
        plan=best.plan,
        prediction=predict(best.plan, best.simulation, simulator, rule),
        assumptions=problem.assumptions + _idle_note(problem, best),
        source_share=source_share(best.simulation),
        provenance=_provenance(simulator.pricer, problem.measured),
        search=_search_result(search, found),
        alternatives=_alternatives(found, top, simulator, rule),
    )


def _search_mixed(problem: Problem, search: MixedSearch, top: int) -> Mixed:
    """The best plan over several device groups, where it is faster than what is known."""
    known_s = search.best_s
    with no_garbage_collection():
        found = search.run()
    done = SearchResult(
        seconds=round(found.seconds, 3),
        candidates=found.simulated,
        lower_bound_s=found.lower_bound_s,
        gap=0.0,
        stopped_by=found.stopped_by,
        space=search.space.describe(found.shapes),
        left_out=search.space.left_out(),
    )
    if not found.outcomes or found.outcomes[0].step_time_s >= known_s:
        return Mixed(report=None, search=done)
    best = found.outcomes[0]
    simulator, rule = search.evaluator.simulator, search.evaluator.rule
    report = Report(
        plan=best.plan,
        prediction=predict(best.plan, best.simulation, simulator, rule),
        assumptions=problem.assumptions + _idle_note(problem, best),
        source_share=source_share(best.simulation),
        provenance=_provenance(simulator.pricer, problem.measured),
        alternatives=_alternatives(found, top, simulator, rule),
    )
    return Mixed(report=report, search=done)


def _run(search: Search) -> Found:
    """Run a search; Ctrl-C before any plan was found stays Ctrl-C, for nothing is known yet."""
    try:
        with no_garbage_collection():
            return search.run()
    except InfeasibleError:
        if search.interrupted:
            raise KeyboardInterrupt from None
        raise


@contextmanager
def no_garbage_collection(leaves: bool = False) -> Iterator[None]:
    """What searches makes many objects and no cycles: looking for some takes a fifth of its time.

    Args:
        leaves: the process ends soon, so what is there is not looked through afterwards either.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if leaves:
                gc.freeze()
            gc.enable()


def _idle_note(problem: Problem, best: Outcome) -> tuple[Assumption, ...]:
    used = best.decision.shape.devices
    idle = problem.cluster.device_count - used
    if not idle:
        return ()
    why = f"the best plan leaves {idle} of {problem.cluster.device_count} devices idle"
    return (Assumption(path="idle_devices", value=idle, why=why),)


def _search_result(search: Search, found: Found) -> SearchResult:
    best_s = found.outcomes[0].step_time_s
    return SearchResult(
        seconds=round(found.seconds, 3),
        candidates=found.simulated,
        lower_bound_s=found.lower_bound_s,
        gap=best_s / found.lower_bound_s - 1 if found.lower_bound_s else 0.0,
        stopped_by=found.stopped_by,
        space=search.space.describe(found.shapes),
        left_out=search.space.left_out(),
    )


def _alternatives(
    found: Found, top: int, simulator: Simulator, rule: MemoryRule
) -> tuple[Alternative, ...]:
    """The next best plans of other shapes, and the simplest within the model's error."""
    best = found.outcomes[0]
    shapes = {best.decision.shape}
    chosen: list[Outcome] = []
    for outcome in found.outcomes[1:]:
        if len(chosen) < top and outcome.decision.shape not in shapes:
            shapes.add(outcome.decision.shape)
            chosen.append(outcome)
    tied = [o for o in found.outcomes if o.step_time_s <= best.step_time_s * (1 + TIE_WITHIN)]
    simplest = min(tied, key=_complexity)
    if simplest is not best and simplest not in chosen:
        chosen.append(simplest)
    main = breakdown(best.simulation)
    return tuple(
        Alternative(
            plan=o.plan,
            prediction=predict(o.plan, o.simulation, simulator, rule),
            lost_by=_lost_by(best, main, o),
            simplest=o is simplest and o is not best,
        )
        for o in chosen
    )


def _complexity(outcome: Outcome) -> tuple[int, int, float]:
    return (outcome.distinct_strategies, outcome.decision.shape.stages, outcome.step_time_s)


def _lost_by(best: Outcome, main: dict[str, float], other: Outcome) -> str:
    """How much slower, and which term grew most."""
    terms = breakdown(other.simulation)
    grown = max(terms, key=lambda name: (terms[name] - main[name], name))
    share = other.step_time_s / best.step_time_s - 1
    return f"+{share:.1%}: {grown.replace('_', ' ')}"
