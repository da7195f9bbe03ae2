"""The plan in a file that a verb was given, priced as its flags say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cli_options import typed_inputs

if TYPE_CHECKING:
    from ..costmodel.feasibility import MemoryRule
    from .reports import Simulated


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
    from .inputs import Inputs, plan_pricing
    from .plans import read_plan
    from .reports import memory_rule, simulate_plan

    rule = memory_rule(given["oom_risk"])
    plan = read_plan(file)
    stack, measured, notes = plan_pricing(plan, Inputs(**typed_inputs(given)))
    found = simulate_plan(plan, stack, measured, notes, rule.risk)
    return found, rule.measured_by(found.simulator.pricer.machine.measured)
