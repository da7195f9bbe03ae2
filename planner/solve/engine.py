"""Evaluators and engines of a problem."""

from __future__ import annotations

from dataclasses import replace

from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.memory.feasibility import MemoryRule
from ...costmodel.memory.library_workspace import calibrated_stack
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.simulation.simulator import Simulator
from ..candidates.evaluator import Evaluator
from ..heterogeneous.build import heterogeneous_search
from ..heterogeneous.work_limits import HeterogeneousLimits
from ..search.branch_and_bound import BranchAndBound
from ..search.build import watch_trials
from ..search.feasibility_probe import PROBE, FeasibilityProbe, SearchParts
from ..search.work_limits import Limits
from ..space.objective import Objective, StepCost, StepTime
from ..space.request import Request
from ..uniform.build import search_parts
from .options import DEFAULT_OPTIONS, SolveOptions
from .problem import Problem

MIN_ALTERNATIVES = 8
"""Plans of other shapes that a search keeps, even if fewer are reported."""


def make_evaluator(
    problem: Problem, options: SolveOptions = DEFAULT_OPTIONS, like: Evaluator | None = None
) -> Evaluator:
    """Evaluator to simulate decisions and judge their memory.

    ``like``: one of another number of the same devices, whose prices are reused.
    """
    stack = calibrated_stack(problem.stack, problem.measured)
    request = Request(
        model=problem.model,
        cluster=problem.cluster,
        workload=problem.workload,
        stack=stack,
        pins=options.pins,
        objective=_objective(problem),
        single_fill=problem.objective_choice.objective == "largest-batch",
        token_rules=not problem.objective_choice.grain,
        shards_pinned=len(problem.cluster.groups) == 1,
        executable=options.executable,
        nested_degrees=True,
        techniques=problem.techniques,
        program=dict(problem.program),
    )
    prices = problem.techniques.prices
    lowering = Lowering(problem.model, problem.workload, stack, prices, request.program)
    priced = None if like is None else like.simulator.pricer
    simulator = Simulator(lowering, Pricer(problem.machine, lowering.stack, like=priced))
    return Evaluator(request, simulator, MemoryRule(options.risk).measured_by(problem.measured))


def _objective(problem: Problem) -> Objective:
    if problem.objective_choice.objective == "cost" and problem.prices is not None:
        return StepCost(problem.prices, problem.cluster.groups[0])
    return StepTime()


def make_search(
    problem: Problem, options: SolveOptions, best_value: float = float("inf")
) -> SearchParts:
    """Parts of the search over one device group, to be watched.

    ``best_value``: of another plan, to be beaten; the result may then have no plans.
    """
    limits = Limits(deadline_s=options.deadline_s, alternatives=max(MIN_ALTERNATIVES, options.top))
    evaluator = make_evaluator(problem, options)
    parts = search_parts(evaluator, limits, options.progress, best_value)
    watch_trials(parts, options.watch)
    return parts


def make_joint_engine(
    problem: Problem, options: SolveOptions, incumbent_s: float
) -> BranchAndBound:
    """Joint search over device groups for steps below ``incumbent_s``."""
    limits = HeterogeneousLimits(
        deadline_s=options.deadline_s, alternatives=max(MIN_ALTERNATIVES, options.top)
    )
    return heterogeneous_search(
        make_evaluator(problem, options), limits, options.progress, incumbent_s
    )


def make_probe(problem: Problem, options: SolveOptions) -> FeasibilityProbe:
    """Search over one device group up to the first feasible plan."""
    limits = replace(PROBE, deadline_s=options.deadline_s)
    return FeasibilityProbe(search_parts(make_evaluator(problem, options), limits))
