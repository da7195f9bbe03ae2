"""Reports of simulated plans and solved problems."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np

from ... import __version__
from ...costmodel.explain.breakdown import predict, source_share
from ...costmodel.memory.feasibility import DEFAULT_RISK, MemoryRule
from ...costmodel.memory.library_workspace import calibrated_stack
from ...costmodel.pricing.rate_changes import NO_RATE_CHANGES, RateChanges
from ...costmodel.pricing.version import PRICING_VERSION
from ...costmodel.simulation.simulator import Simulation, Simulator
from ...planner.solve.garbage_collection import garbage_collection_paused
from ...planner.solve.problem import Problem
from ...planner.solve.simulator_cache import simulator_for
from ...planner.solve.solution import Solution, price_tables, pricing_text
from ...planner.technique import KnownTechniques
from ...planner.techniques import SHIPPED
from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.report.report import Assumption, Provenance, Report, StackAnswer
from ..problem.lossy import lossy_notes, unmeasured_notes
from ..problem.report_pricing import with_risk_note
from ..problem.stored_calibrations import measured_name
from .solved_arenas import with_solved_arenas


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A report with the simulation behind it, for timelines."""

    report: Report
    simulation: Simulation
    simulator: Simulator


def memory_rule(risk: float | None) -> MemoryRule:
    """The memory rule for a typed risk, or the default one.

    Raises:
        InputError: a risk that is no number, or out of range.
    """
    if risk is not None and (isinstance(risk, bool) or not isinstance(risk, (int, float))):
        raise InputError("--oom-risk", risk, "a fraction above 0 and at most 0.5", 0.05)
    return MemoryRule(DEFAULT_RISK if risk is None else risk)


def plan_simulator(
    plan: Plan,
    stack: StackSpec,
    measured: Measured | None,
    rates: RateChanges = NO_RATE_CHANGES,
    techniques: KnownTechniques = SHIPPED,
) -> Simulator:
    """A plan's simulator with what was measured.

    Raises:
        InputError: a technique without a price.
    """
    calibrated = calibrated_stack(stack, measured)
    return simulator_for(plan, measured, calibrated, rates, techniques.prices)


def simulate_plan(
    plan: Plan,
    stack: StackSpec,
    measured: Measured | None,
    assumptions: tuple[Assumption, ...],
    risk: float = DEFAULT_RISK,
    rates: RateChanges = NO_RATE_CHANGES,
    techniques: KnownTechniques = SHIPPED,
) -> Simulated:
    """Simulate one plan, feasible or not.

    ``risk`` is the accepted chance of running out of memory, ``rates`` changes the cluster's listed
    rates.

    Raises:
        InputError: a technique without a price, or a plan too large to simulate.
    """
    simulator = plan_simulator(plan, stack, measured, rates, techniques)
    with garbage_collection_paused():
        simulation = simulator.run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    rule = MemoryRule(risk).measured_by(measured)
    prediction = predict(plan, simulation, simulator, rule)
    prediction, solved = with_solved_arenas(plan, prediction, rule, techniques.values)
    first = lossy_notes(plan, techniques.values) + unmeasured_notes(plan, techniques.prices)
    notes = first + with_risk_note(assumptions, risk)
    report = Report(
        plan=plan,
        prediction=prediction,
        assumptions=notes + solved,
        source_share=source_share(simulation),
        provenance=_provenance(pricing_text(simulator.pricer), price_tables(measured), measured),
    )
    return Simulated(report=report, simulation=simulation, simulator=simulator)


def solution_report(
    problem: Problem,
    solution: Solution,
    risk: float = DEFAULT_RISK,
    common_stack: StackAnswer | None = None,
) -> Report:
    """The report of a solved problem, result-changing notes first."""
    known = problem.techniques
    first = lossy_notes(solution.plan, known.values) + unmeasured_notes(solution.plan, known.prices)
    notes = with_risk_note(problem.assumptions + solution.notes, risk)
    return Report(
        plan=solution.plan,
        prediction=solution.prediction,
        assumptions=first + notes,
        source_share=solution.source_share,
        provenance=_provenance(solution.pricing, solution.tables, problem.measured),
        search=solution.search,
        alternatives=solution.alternatives,
        sensitivities=solution.sensitivities,
        advice=solution.advice,
        common_stack=common_stack,
    )


def _provenance(pricing: str, tables: tuple[str, ...], measured: Measured | None) -> Provenance:
    versions = {
        "shardwright": __version__,
        "pricing": str(PRICING_VERSION),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    return Provenance(
        stack=pricing, calibration=measured_name(measured), tables=list(tables), versions=versions
    )
