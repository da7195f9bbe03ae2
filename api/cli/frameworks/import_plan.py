"""``plan import``: a framework's file as a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....spec.errors import InputError
from ..flags import typed_inputs
from ..output import check_targets, emit, write_file

if TYPE_CHECKING:
    from rich.console import Console


def import_command(flags: dict[str, Any]) -> None:
    """Read a framework's file, price it, and say what was assumed and what was not read.

    Raises:
        InputError: no readable file of a framework, or flags that it decides.
    """
    from ....spec.codec import dump_pretty
    from ...frameworks.import_plan import import_plan
    from ...planning.report import memory_rule, simulate_plan
    from ...planning.uniform_plan import strategy_flags
    from ...problem.report_pricing import priced_document
    from ...problem.resolve import Inputs

    check_targets(out=flags["out"], json=flags["json_target"])
    if flags["plan_file"] is None:
        near = "plan import train.toml --cluster 8xH100-80GB"
        raise InputError("FILE", "nothing", "a framework's configuration", near)
    rule = memory_rule(flags["oom_risk"])
    strategy = {name: flags.get(name) for name in strategy_flags()}
    read = import_plan(flags["plan_file"], flags["source"], Inputs(**typed_inputs(flags)), strategy)
    problem = read.problem
    simulated = simulate_plan(read.plan, problem.stack, problem.measured, read.assumptions)
    rule = rule.measured_by(simulated.simulator.pricer.machine.measured)
    report = simulated.report
    if flags["out"]:
        document = priced_document(report, problem.stack, problem.measured, rule.risk)
        write_file(flags["out"], dump_pretty(document))

    def show(out: Console) -> None:
        from ...terminal.frameworks import print_imported
        from ...terminal.plan import print_report

        print_imported(out, read, flags["plan_file"])
        print_report(out, report, rule, _next_steps(flags))

    emit(read.to_document(report), flags["json_target"], show)


def _next_steps(flags: dict[str, Any]) -> list[str]:
    path = flags["out"]
    if path is None:
        return ["the same with --out plan.json, then plan explain plan.json"]
    return [f"plan explain {path}", f"plan what-if {path} --set inter_node.bandwidth=2x"]
