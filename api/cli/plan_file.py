"""The plan in a file that a verb was given, priced as its flags say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .flags import typed_inputs

if TYPE_CHECKING:
    from ...costmodel.memory.feasibility import MemoryRule
    from ..planning.plan_and_simulate import Simulated


def priced_file(file: str, given: dict[str, Any]) -> tuple[Simulated, MemoryRule]:
    """Read a plan and simulate it.

    Args:
        file: path of the plan.
        given: the verb's flags.

    Returns:
        The simulation, and the rule by which its memory fits its devices.

    Raises:
        InputError: no usable plan or flags.
    """
    from ..planning.plan_and_simulate import memory_rule, simulate_plan
    from ..problem.plan_files import read_plan
    from ..problem.resolve import Inputs, plan_pricing

    rule = memory_rule(given["oom_risk"])
    plan = read_plan(file)
    stack, measured, notes = plan_pricing(plan, Inputs(**typed_inputs(given)))
    found = simulate_plan(plan, stack, measured, notes, rule.risk)
    return found, rule.measured_by(found.simulator.pricer.machine.measured)
