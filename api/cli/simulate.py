"""``plan simulate`` and ``plan explain``: a plan's price, and its terms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from .flags import typed_inputs
from .output import check_targets, emit, note, write_file
from .plan_file import priced_file

if TYPE_CHECKING:
    from rich.console import Console

    from ...costmodel.memory.feasibility import MemoryRule
    from ..planning.report import Simulated

FLAGS_WITH_PLAN = (
    "stack",
    "calibration",
    "oom_risk",
    "attention",
    "overlap",
    "json_target",
    "trace",
    "prices",
    "tokens",
)


def simulate_command(flags: dict[str, Any]) -> None:
    """Simulate the plan of the flags.

    Raises:
        InputError: flags, files or strategies that cannot be used.
    """
    check_targets(json=flags["json_target"], trace=flags["trace"])
    simulated, rule = _simulated(flags)
    simulated = _with_cost(simulated, flags)
    if flags["trace"]:
        from ...costmodel.simulation.timeline import simulated_timeline

        timeline = simulated_timeline(simulated.simulation, simulated.simulator)
        write_file(flags["trace"], timeline.to_perfetto())
    _emit_simulation(simulated, flags, rule)


def _simulated(flags: dict[str, Any]) -> tuple[Simulated, MemoryRule]:
    from ..planning.report import memory_rule, simulate_plan
    from ..planning.uniform_plan import UniformStrategy, uniform_plan
    from ..problem.resolve import Inputs, resolve

    if flags["plan_file"] is not None:
        return _simulated_file(flags)
    rule = memory_rule(flags["oom_risk"])
    problem = resolve(Inputs(**typed_inputs(flags)))
    plan, notes = uniform_plan(problem, UniformStrategy.from_flags(flags))
    assumptions = problem.assumptions + notes
    simulated = simulate_plan(plan, problem.stack, problem.measured, assumptions, rule.risk)
    return simulated, rule.measured_by(simulated.simulator.pricer.machine.measured)


def _simulated_file(flags: dict[str, Any]) -> tuple[Simulated, MemoryRule]:
    from ..frameworks.plan_sources import is_framework_file

    if is_framework_file(flags["plan_file"], flags.get("source")):
        return priced_file(flags["plan_file"], flags)
    for name, value in flags.items():
        if name not in (*FLAGS_WITH_PLAN, "plan_file") and value is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(flag, value, f"nothing beside {flags['plan_file']}, which decides it")
    return priced_file(flags["plan_file"], flags)


def _with_cost(simulated: Simulated, flags: dict[str, Any]) -> Simulated:
    from ..planning.training import priced_report, trained_report
    from ..problem.price_file import prices_of

    report = simulated.report
    prices = prices_of(flags["prices"], report.plan.cluster)
    report = trained_report(priced_report(report, prices), flags["tokens"])
    return replace(simulated, report=report)


def _emit_simulation(simulated: Simulated, flags: dict[str, Any], rule: MemoryRule) -> None:
    from ..views.report_text import excess_lines

    report = simulated.report

    def show(out: Console) -> None:
        from ..terminal.plan import print_report

        print_report(out, report, rule, _next_steps(flags))

    emit(report.to_document(), flags["json_target"], show)
    if flags["json_target"] == "-":
        for line in excess_lines(report.prediction.memory, rule)[:1]:
            note(f"does not fit: {line}")


def _next_steps(flags: dict[str, Any]) -> list[str]:
    if flags["trace"]:
        return [f"open {flags['trace']} in ui.perfetto.dev"]
    path = flags["plan_file"]
    if path is None:
        return ["the same with --trace trace.json"]
    return [f"plan explain {path}", f"plan simulate {path} --trace trace.json"]


def explain_command(flags: dict[str, Any]) -> None:
    """Explain the plan in a file.

    Raises:
        InputError: no usable plan.
    """
    from ..planning.checkpoint_price import with_checkpoint
    from ..views.explanation import explain_report

    check_targets(json=flags["json_target"])
    if flags["plan_file"] is None:
        raise InputError("PLAN.json", "nothing", "a plan file", "plan explain plan.json")
    checkpoint = flags.pop("checkpoint")
    simulated, rule = _simulated_file(flags)
    if checkpoint is not None:
        simulated = with_checkpoint(simulated)
    explanation = explain_report(simulated.report, simulated.simulation, simulated.simulator)

    def show(out: Console) -> None:
        from ..terminal.explanation import print_explanation

        print_explanation(out, explanation, rule)

    emit(explanation.to_document(), flags["json_target"], show)
