"""Reports: a plan simulated or searched for, with everything that was assumed."""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from ... import __version__
from ...costmodel.explain.breakdown import predict, source_share
from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.memory.feasibility import DEFAULT_RISK, MemoryRule
from ...costmodel.memory.library_workspace import calibrated_stack
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.pricing.rate_changes import NO_RATE_CHANGES, RateChanges
from ...costmodel.simulation.simulator import Simulation, Simulator
from ...planner.candidates.evaluator import Evaluator
from ...planner.heterogeneous.branch_and_bound import HeterogeneousLimits, HeterogeneousSearch
from ...planner.search.branch_and_bound import BranchAndBound, Limits, SolveResult
from ...planner.search.feasibility_probe import PROBE, FeasibilityProbe
from ...planner.space.objective import Objective, StepCost, StepTime
from ...planner.space.pins import Pin
from ...planner.space.search_space import Request
from ...planner.technique import KnownTechniques
from ...planner.techniques import SHIPPED
from ...spec.choices import Preference
from ...spec.cluster.measured import Measured, profile_of
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InfeasibleError, InputError
from ...spec.plan.plan import Plan
from ...spec.report.report import Assumption, Provenance, Report
from ..problem.lossy import lossy_notes
from ..problem.resolve import Problem
from ..problem.stored_calibrations import measured_name
from .alternatives import alternatives, prediction_with_cost, ranking
from .by_device_group import cluster_parts, group_problems, search_groups
from .heterogeneous import JointResult, search_heterogeneous
from .largest_size import search_largest
from .nearest_feasible import with_feasible_changes
from .search_result import plan_notes, search_result
from .sensitivities import winner_sensitivities
from .simulator_cache import simulator_for

ProgressCallback = Callable[[int, int, float], None]
SearchCallback = Callable[[BranchAndBound, bool], None]
"""Looks at a search that runs; the flag says whether its best plan would be the whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A report with the simulation behind it, for timelines."""

    report: Report
    simulation: Simulation
    simulator: Simulator


def memory_rule(risk: float | None) -> MemoryRule:
    """The rule for a typed risk; the usual one where none was typed.

    Raises:
        InputError: a risk that is no number, or out of range.
    """
    if risk is not None and (isinstance(risk, bool) or not isinstance(risk, (int, float))):
        raise InputError("--oom-risk", risk, "a fraction above 0 and at most 0.5", 0.05)
    return MemoryRule(DEFAULT_RISK if risk is None else risk)


def simulate_plan(
    plan: Plan,
    stack: StackSpec,
    measured: Measured | None,
    assumptions: tuple[Assumption, ...],
    risk: float = DEFAULT_RISK,
    rates: RateChanges = NO_RATE_CHANGES,
    techniques: KnownTechniques = SHIPPED,
) -> Simulated:
    """Simulate one plan, whether it fits or not.

    Args:
        plan: a legal plan.
        stack: the software that runs it.
        measured: a profile or calibration of its cluster, if there is one.
        assumptions: behind the prediction.
        risk: accepted chance of running out of memory.
        rates: what a question changes.
        techniques: those that are known.

    Raises:
        InputError: a technique without a price, or a plan too large to simulate.
    """
    known = calibrated_stack(stack, measured)
    simulator = simulator_for(plan, measured, known, rates, techniques.prices)
    with garbage_collection_paused():
        simulation = simulator.run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    report = Report(
        plan=plan,
        prediction=predict(plan, simulation, simulator, MemoryRule(risk).measured_by(measured)),
        assumptions=lossy_notes(plan, techniques.values) + assumptions,
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
    if (profile := profile_of(measured)) is not None:
        tables.append(f"profile {profile.measured_at}")
    choices = f"attention {stack.attention}, overlap {pricer.overlap}"
    return Provenance(
        stack=f"{stack.name} {stack.version} ({choices})",
        calibration=measured_name(measured),
        tables=tables,
        versions=versions,
    )


def make_evaluator(
    problem: Problem,
    pins: tuple[Pin, ...] = (),
    risk: float = DEFAULT_RISK,
    executable: bool = False,
) -> Evaluator:
    """What simulates decisions on a problem of one device group and judges their memory.

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
        objective=_objective(problem),
        single_fill=problem.objective_choice.objective == "largest-batch",
        token_rules=not problem.objective_choice.grain,
        executable=executable,
        techniques=problem.techniques,
    )
    lowering = Lowering(problem.model, problem.workload, stack, problem.techniques.prices)
    simulator = Simulator(lowering, Pricer(problem.machine, stack))
    return Evaluator(request, simulator, MemoryRule(risk).measured_by(problem.measured))


def _objective(problem: Problem) -> Objective:
    """What the search minimises; at the largest size that is the step time."""
    if problem.objective_choice.objective == "cost" and problem.prices is not None:
        return StepCost(problem.prices, problem.cluster.groups[0])
    return StepTime()


def search_plan(
    problem: Problem,
    pins: tuple[Pin, ...] = (),
    top: int = 3,
    deadline_s: float | None = None,
    risk: float = DEFAULT_RISK,
    executable: bool = False,
    progress: ProgressCallback | None = None,
    prefer: Preference = "best",
    watch: SearchCallback | None = None,
) -> Report:
    """The best plan of a problem, with what else was found.

    Args:
        problem: what is asked.
        pins: decisions that are fixed.
        top: how many alternatives to show.
        deadline_s: stop after so many seconds with the best plan so far.
        risk: accepted chance of running out of memory.
        executable: keep to what the bundled executor runs.
        progress: called with (shapes seen, shapes in all, best value of the objective).
        prefer: ``simple`` answers with the simplest of the plans that tie with the best.
        watch: called after every trial of a search; it must change nothing.

    Raises:
        InfeasibleError: nothing fits.
    """
    whole = len(problem.cluster.groups) == 1 and not problem.objective_choice.grain
    on_trial = None if watch is None else lambda search: watch(search, whole)
    settings = _SearchSettings(
        pins=pins,
        top=top,
        risk=risk,
        executable=executable,
        progress=progress,
        prefer=prefer,
        on_trial=on_trial,
    )

    def search_one(asked: Problem, left_s: float | None) -> Report:
        return _search(asked, left_s, settings)

    def any_fits(asked: Problem, left_s: float | None) -> InfeasibleError | None:
        return fit_error(asked, pins, left_s, risk, executable)

    start_s = time.monotonic()
    try:
        if problem.objective_choice.grain:
            return search_largest(problem, search_one, any_fits, deadline_s)
        return search_one(problem, deadline_s)
    except InfeasibleError as error:
        if error.late:
            raise
        until_s = None if deadline_s is None else start_s + deadline_s
        known = error

    def fits(asked: Problem, kept: tuple[Pin, ...]) -> bool:
        return _fits(asked, until_s, replace(settings, pins=kept))

    raise with_feasible_changes(known, problem, pins, fits)


def fit_error(
    problem: Problem,
    pins: tuple[Pin, ...] = (),
    deadline_s: float | None = None,
    risk: float = DEFAULT_RISK,
    executable: bool = False,
) -> InfeasibleError | None:
    """Why no plan of a problem fits; None where one does. As :func:`search_plan`, ended there."""
    errors = []
    for asked in group_problems(problem):
        limits = replace(PROBE, deadline_s=deadline_s)
        with garbage_collection_paused():
            error = FeasibilityProbe(
                make_evaluator(asked, pins, risk, executable), limits
            ).fit_error()
        if error is None:
            return None
        errors.append(error)
    return errors[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchSettings:
    """How a search is done, whatever its problem; as :func:`search_plan` takes it."""

    pins: tuple[Pin, ...]
    top: int
    risk: float
    executable: bool
    progress: ProgressCallback | None
    prefer: Preference
    on_trial: Callable[[BranchAndBound], None] | None

    def evaluator(self, problem: Problem) -> Evaluator:
        """What prices plans of a problem."""
        return make_evaluator(problem, self.pins, self.risk, self.executable)


def _fits(problem: Problem, until_s: float | None, settings: _SearchSettings) -> bool:
    """Whether a plan is soon found that fits, before ``until_s`` of the monotonic clock."""
    left_s = None if until_s is None else until_s - time.monotonic()
    if left_s is not None and left_s <= 0:
        return False
    limits = replace(PROBE, deadline_s=left_s)
    with garbage_collection_paused():
        return any(
            FeasibilityProbe(settings.evaluator(one), limits).fits_quickly()
            for one in group_problems(problem)
        )


def _search(problem: Problem, deadline_s: float | None, settings: _SearchSettings) -> Report:
    """The best plan of a problem whose sizes are known; nothing else of the search is left."""
    if len(problem.cluster.groups) > 1:
        return _search_device_groups(problem, deadline_s, settings)
    with garbage_collection_paused():
        return _search_one_group(problem, deadline_s, settings)


def _search_device_groups(
    problem: Problem, deadline_s: float | None, settings: _SearchSettings
) -> Report:
    """The best plan of several device groups: of each alone, and of all together."""
    each_s = deadline_s and deadline_s / (len(cluster_parts(problem.cluster)) + 1)

    def together(best_s: float) -> JointResult:
        limits = HeterogeneousLimits(deadline_s=each_s, alternatives=max(8, settings.top))
        evaluator = settings.evaluator(problem)
        search = HeterogeneousSearch(evaluator, limits, settings.progress, best_s)
        provenance = _provenance(evaluator.simulator.pricer, problem.measured)
        return search_heterogeneous(
            problem, search, provenance, settings.top, settings.prefer == "simple"
        )

    def search_jointly(best_s: float) -> JointResult:
        with (
            garbage_collection_paused()
        ):  # around the call: what it holds is let go of before the end
            return together(best_s)

    fastest = problem.objective_choice.objective == "throughput"
    return search_groups(
        problem, lambda alone: _search(alone, each_s, settings), search_jointly if fastest else None
    )


def _search_one_group(
    problem: Problem, deadline_s: float | None, settings: _SearchSettings
) -> Report:
    evaluator = settings.evaluator(problem)
    limits = Limits(deadline_s=deadline_s, alternatives=max(8, settings.top))
    search = BranchAndBound(evaluator, limits, settings.progress, settings.on_trial)
    found = _run_search(search)
    ranked = ranking(search, found, settings.prefer == "simple")
    best = ranked.chosen
    return Report(
        plan=best.plan,
        prediction=prediction_with_cost(best, search, problem.prices),
        assumptions=plan_notes(problem, best),
        source_share=source_share(best.simulation),
        provenance=_provenance(evaluator.simulator.pricer, problem.measured),
        search=search_result(search, found, ranked, problem),
        alternatives=alternatives(ranked, settings.top, problem.prices),
        sensitivities=winner_sensitivities(search, best),
    )


def _run_search(search: BranchAndBound) -> SolveResult:
    """Run a search; Ctrl-C before any plan was found stays Ctrl-C, for nothing is known yet."""
    try:
        return search.run()
    except InfeasibleError:
        if search.interrupted:
            raise KeyboardInterrupt from None
        raise


@contextmanager
def garbage_collection_paused(leaves: bool = False) -> Iterator[None]:
    """What searches makes many objects: looking for dead cycles takes a fifth of its time.

    A search is a cycle itself. At the end of the block it is looked for among what is young, which
    is what the block made; later it would be among everything, and looked for seldom.

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
            else:
                gc.collect(0)
            gc.enable()
