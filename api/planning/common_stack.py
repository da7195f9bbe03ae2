"""The answer for the software that most people would train with, beside that for our own."""

from __future__ import annotations

from dataclasses import replace

from ...datasets.catalogue.device import CPU, device
from ...planner.solve.options import SolveOptions
from ...planner.solve.problem import Problem
from ...planner.solve.program_search import best_plan
from ...spec.cluster.calibration import Calibration
from ...spec.errors import InfeasibleError
from ...spec.report.report import StackAnswer
from ..problem.stack import DEFAULT_STACK, stack_of

MOST_DEVICES_OF_TORCHTITAN = 64


def common_stack_answer(
    problem: Problem, options: SolveOptions, deadline_s: float | None = None
) -> StackAnswer | None:
    """The best plan for the nearest common stack, where the stack was not given.

    Megatron above 64 devices, torchtitan to 64, transformers for adapters.

    Args:
        problem: solved for our own stack.
        options: of its search.
        deadline_s: seconds left; None: no limit.

    Returns:
        None where a stack was given, for cores, runs and several device groups, and for a largest
        size; an answer without a plan where none fits.
    """
    is_assumed = any(n.path == "stack" and n.value == DEFAULT_STACK for n in problem.assumptions)
    on_cores = problem.cluster.groups[0].device == CPU
    if not is_assumed or on_cores or options.executable or not problem.is_single_search:
        return None
    if deadline_s is not None and deadline_s <= 0:
        return None
    name = _nearest_name(problem)
    first = device(problem.cluster.groups[0].device)
    stack = stack_of(name, problem.stack.attention, None, first, problem.workload.dtype.param, [])
    changed = replace(problem, stack=stack)
    if isinstance(problem.measured, Calibration):  # of our stack alone
        machine = replace(problem.machine, measured=None)
        changed = replace(changed, measured=None, machine=machine)
    return stack_answer(changed, options, deadline_s)


def stack_answer(
    problem: Problem, options: SolveOptions, deadline_s: float | None = None
) -> StackAnswer | None:
    """The best plan of a problem for its stack.

    Returns:
        None where the deadline came first; an answer without a plan where none fits.
    """
    name = problem.stack.name
    try:
        plan, prediction = best_plan(problem, options.for_subproblem(deadline_s))
    except InfeasibleError as error:
        return None if error.late else StackAnswer(stack=name)
    return StackAnswer(stack=name, plan=plan, prediction=prediction)


def _nearest_name(problem: Problem) -> str:
    if problem.workload.adapters is not None:
        return "transformers"
    few = problem.cluster.device_count <= MOST_DEVICES_OF_TORCHTITAN
    return "torchtitan" if few else "megatron"
