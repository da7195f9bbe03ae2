"""Bare ``plan``: search, show, write, and run where that was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..spec.choices import PREFERENCES, Preference
from ..spec.errors import InputError, one_of
from .cli_options import typed_inputs
from .cli_output import ProgressLine, check_targets, emit, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from ..costmodel.feasibility import MemoryRule
    from ..planner.pins import Pin
    from ..spec.report import Report
    from .inputs import Problem

DEFAULT_TOP = 3


def search(given: dict[str, Any]) -> None:
    """Search as the flags say, and answer.

    Raises:
        InputError: flags that cannot be used.
        InfeasibleError: nothing fits.
        RunError: the plan was found, and its run failed.
    """
    from ..spec.codec import dump_pretty
    from .galvatron_flags import EXACTLY, OURS, foreign_costs
    from .inputs import Inputs, resolve
    from .pinning import resolve_pins
    from .reports import memory_rule, no_garbage_collection

    check_targets(out=given["out"], json=given["json_target"])
    if not given["execute"]:
        _refuse_run_flags(given)
    rule = memory_rule(given["oom_risk"])
    prefer = one_of("--prefer", given["prefer"] or "best", PREFERENCES)
    inputs = Inputs(**typed_inputs(given))
    if galvatron := foreign_costs(given):
        rule = EXACTLY
    problem = resolve(inputs)
    if given["galvatron_profile"] and not galvatron:
        problem = replace(problem, assumptions=(*problem.assumptions, OURS))
    if given["execute"]:
        from .cli_execute import measured, require_runnable

        require_runnable(problem)
    pins = resolve_pins(given["pins"], problem, given["execute"])
    if given["execute"]:
        problem = measured(inputs, problem)
    with no_garbage_collection(leaves=True):  # until the answer is out: what a search made is large
        if galvatron:
            report = _search_galvatron(problem, pins, given, rule)
        else:
            report = _search(problem, pins, given, rule, prefer)
        if given["out"]:
            write_file(given["out"], dump_pretty(report.plan.to_document()))
        steps: list[dict[str, Any]] = []
        if given["execute"]:
            from .cli_execute import run_plan

            notes = problem.assumptions
            document, steps = run_plan(report.plan, problem.stack, problem.measured, notes, given)
            report = replace(report, execute=document)
        _emit(report, given, rule.measured_by(problem.measured), steps)


def _refuse_run_flags(given: dict[str, Any]) -> None:
    for name in ("steps", "verify"):
        if given[name]:
            value = given[name] if name == "steps" else "it"
            near = f"--execute --{name}" + (f" {value}" if name == "steps" else "")
            raise InputError(f"--{name}", f"{value} without --execute", "--execute beside it", near)


def _search(
    problem: Problem,
    pins: tuple[Pin, ...],
    given: dict[str, Any],
    rule: MemoryRule,
    prefer: Preference,
) -> Report:
    from .reports import search_plan

    unit = "s"
    if problem.prices is not None and problem.goal.objective == "cost":
        unit = f"{problem.prices.currency} a step"
    with ProgressLine("searching", "shapes") as line:

        def progress(seen: int, shapes: int, best: float) -> None:
            found = f"best {best:.4g} {unit}" if best < float("inf") else "nothing fits yet"
            line(seen, shapes, found)

        return search_plan(
            problem,
            pins,
            top=DEFAULT_TOP if given["top"] is None else given["top"],
            deadline_s=given["deadline"],
            risk=rule.risk,
            executable=given["execute"],
            progress=progress,
            prefer=prefer,
        )


def _search_galvatron(
    problem: Problem, pins: tuple[Pin, ...], given: dict[str, Any], rule: MemoryRule
) -> Report:
    from .galvatron_search import galvatron_plan

    top = DEFAULT_TOP if given["top"] is None else given["top"]
    return galvatron_plan(problem, given["galvatron_profile"], top, given["deadline"])


def _emit(
    report: Report, given: dict[str, Any], rule: MemoryRule, steps: list[dict[str, Any]]
) -> None:
    def show(out: Console) -> None:
        from .render_execute import print_execution
        from .render_plan import print_report

        print_report(out, report, rule, _next_steps(report, given))
        if report.execute is not None:
            out.print()
            print_execution(out, report.execute, steps)

    emit(report.to_document(), given["json_target"], show)


def _next_steps(report: Report, given: dict[str, Any]) -> list[str]:
    """What a person may type after seeing a plan."""
    path = given["out"]
    if path is None:
        return ["the same with --out plan.json, then plan explain plan.json"]
    found = [f"plan explain {path}", f"plan simulate {path} --trace trace.json"]
    if report.plan.cluster.groups[0].node == "local" and not given["execute"]:
        found.append(f"plan execute {path}")
    return found
