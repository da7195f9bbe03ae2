"""A verb's plan file, priced under its flags, else as its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .flags import typed_inputs

if TYPE_CHECKING:
    from ...costmodel.memory.feasibility import MemoryRule
    from ..planning.report import Simulated


def priced_file(file: str, flags: dict[str, Any]) -> tuple[Simulated, MemoryRule]:
    """Read a plan, or a framework's file, and simulate it.

    Returns:
        The simulation, and the memory rule that judges it.

    Raises:
        InputError: no usable plan or flags.
    """
    from ..frameworks.plan_sources import is_framework_file
    from ..planning.report import memory_rule, simulate_plan
    from ..problem.report_pricing import read_document
    from ..problem.resolve import Inputs, plan_pricing
    from .frameworks.files import imported_file

    rule = memory_rule(flags["oom_risk"])
    if is_framework_file(file, flags.get("source")):
        read = imported_file(file, flags)
        problem = read.problem
        pricing = (problem.stack, problem.measured, read.assumptions)
        simulated = simulate_plan(read.plan, *pricing, rule.risk)
        return simulated, rule.measured_by(simulated.simulator.pricer.machine.measured)
    document = read_document(file)
    rule = memory_rule(document.risk(flags["oom_risk"]))
    inputs = document.inputs(Inputs(**typed_inputs(flags)))
    stack, measured, notes = plan_pricing(document.plan, inputs)
    simulated = simulate_plan(document.plan, stack, measured, notes, rule.risk)
    return simulated, rule.measured_by(simulated.simulator.pricer.machine.measured)
