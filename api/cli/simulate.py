"""``plan simulate`` and ``plan explain``: price a plan, and take its price apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from .flags import typed_inputs
from .output import check_targets, emit, note, write_file
from .plan_file import priced_file

if TYPE_CHECKING:
    from rich.console import Console

    from ...costmodel.memory.feasibility import MemoryRule
    from ..planning.plan_and_simulate import Simulated

FLAGS_WITH_PLAN = (
    "stack",
    "calibration",
    "oom_risk",
    "attention",
    "overlap",
    "json_target",
    "trace",
)


def simulate_command(given: dict[str, Any]) -> None:
    """Simulate what the flags say.

    Raises:
        InputError: flags, files or strategies that cannot be used.
    """
    check_targets(json=given["json_target"], trace=given["trace"])
    found, rule = _simulated(given)
    if given["trace"]:
        from ...costmodel.simulation.timeline import simulated_timeline

        timeline = simulated_timeline(found.simulation, found.simulator)
        write_file(given["trace"], timeline.to_perfetto())
    _emit_simulation(found, given, rule)


def _simulated(given: dict[str, Any]) -> tuple[Simulated, MemoryRule]:
    from ..planning.plan_and_simulate import memory_rule, simulate_plan
    from ..planning.uniform_plan import UniformStrategy, uniform_plan
    from ..problem.resolve import Inputs, resolve

    if given["plan_file"] is not None:
        return _simulated_file(given)
    rule = memory_rule(given["oom_risk"])
    problem = resolve(Inputs(**typed_inputs(given)))
    plan, notes = uniform_plan(problem, UniformStrategy.from_flags(given))
    every = problem.assumptions + notes
    found = simulate_plan(plan, problem.stack, problem.measured, every, rule.risk)
    return found, rule.measured_by(found.simulator.pricer.machine.measured)


def _simulated_file(given: dict[str, Any]) -> tuple[Simulated, MemoryRule]:
    for name, value in given.items():
        if name not in (*FLAGS_WITH_PLAN, "plan_file") and value is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(flag, value, f"nothing beside {given['plan_file']}, which decides it")
    return priced_file(given["plan_file"], given)


def _emit_simulation(found: Simulated, given: dict[str, Any], rule: MemoryRule) -> None:
    from ..views.report_text import excess_lines

    report = found.report

    def show(out: Console) -> None:
        from ..terminal.plan import print_report

        print_report(out, report, rule, _next_steps(given))

    emit(report.to_document(), given["json_target"], show)
    if given["json_target"] == "-":
        for line in excess_lines(report.prediction.memory, rule)[:1]:
            note(f"does not fit: {line}")


def _next_steps(given: dict[str, Any]) -> list[str]:
    if given["trace"]:
        return [f"open {given['trace']} in ui.perfetto.dev"]
    path = given["plan_file"]
    if path is None:
        return ["the same with --trace trace.json"]
    return [f"plan explain {path}", f"plan simulate {path} --trace trace.json"]


def explain_command(given: dict[str, Any]) -> None:
    """Explain the plan in a file.

    Raises:
        InputError: no usable plan.
    """
    from ..views.explanation import explain_report

    check_targets(json=given["json_target"])
    if given["plan_file"] is None:
        raise InputError("PLAN.json", "nothing", "a plan file", "plan explain plan.json")
    found, rule = _simulated_file(given)
    explanation = explain_report(found.report, found.simulation, found.simulator)

    def show(out: Console) -> None:
        from ..terminal.explanation import print_explanation

        print_explanation(out, explanation, rule)

    emit(explanation.to_document(), given["json_target"], show)
