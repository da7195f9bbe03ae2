"""Bare ``plan``: search, show, write, and run where that was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...spec.choices import PREFERENCES, Preference
from ...spec.errors import InputError, one_of
from .flags import typed_inputs
from .output import ProgressLine, check_targets, emit, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from ...costmodel.memory.feasibility import MemoryRule
    from ...planner.space.pins import Pin
    from ...spec.plan.plan import Plan
    from ...spec.report.report import Report
    from ..problem.resolve import Problem

DEFAULT_TOP = 3


def plan_command(given: dict[str, Any]) -> None:
    """Search as the flags say, and answer.

    Raises:
        InputError: flags that cannot be used.
        InfeasibleError: nothing fits.
        RunError: the plan was found, and its run failed.
    """
    from ...spec.codec import dump_pretty
    from ..planning.galvatron_flags import GALVATRON_RULE, OUR_COSTS_NOTE, uses_galvatron_costs
    from ..planning.plan_and_simulate import garbage_collection_paused, memory_rule
    from ..problem.pins import resolve_pins
    from ..problem.resolve import Inputs, resolve

    check_targets(out=given["out"], json=given["json_target"])
    if not given["execute"]:
        _refuse_run_flags(given)
    rule = memory_rule(given["oom_risk"])
    prefer = one_of("--prefer", given["prefer"] or "best", PREFERENCES)
    inputs = Inputs(**typed_inputs(given))
    if galvatron := uses_galvatron_costs(given):
        rule = GALVATRON_RULE
    problem = resolve(inputs)
    if given["galvatron_profile"] and not galvatron:
        problem = replace(problem, assumptions=(*problem.assumptions, OUR_COSTS_NOTE))
    if given["execute"]:
        from .execute import measured, require_executable_problem

        require_executable_problem(problem)
    pins = resolve_pins(given["pins"], problem, given["execute"])
    if given["execute"]:
        problem = measured(inputs, problem)
    with garbage_collection_paused(
        leaves=True
    ):  # until the answer is out: what a search made is large
        if galvatron:
            report = _search_galvatron(problem, pins, given, rule)
        else:
            report = _search(problem, pins, given, rule, prefer)
        if given["out"]:
            write_file(given["out"], dump_pretty(report.plan.to_document()))
        steps: list[dict[str, Any]] = []
        if given["execute"]:
            report, steps = _run(report, problem, given)
        _emit(report, given, rule.measured_by(problem.measured), steps)


def _run(
    report: Report, problem: Problem, given: dict[str, Any]
) -> tuple[Report, list[dict[str, Any]]]:
    """The report with its plan's run, or with those of its best plans; steps of the one shown.

    Of several the fastest run is shown, and its plan written to ``--out``.
    """
    from ...spec.codec import dump_pretty
    from .execute import run_plan

    notes, reported = problem.assumptions, dict[str, list[dict[str, Any]]]()

    def run(plan: Plan) -> dict[str, Any]:
        document, reported[plan.hash] = run_plan(
            plan, problem.stack, problem.measured, notes, given
        )
        return document

    if not given["measure_top"]:
        return replace(report, execute=run(report.plan)), reported[report.plan.hash]
    from ..execution.measure_top import check_count, measure_plans

    plans = [report.plan, *(other.plan for other in report.alternatives)]
    chosen = list({plan.hash: plan for plan in plans}.values())[: check_count(given["measure_top"])]
    found, calibration = measure_plans(chosen, problem.stack, problem.measured, run)
    best = found[0]
    if given["out"]:
        write_file(given["out"], dump_pretty(best.plan.to_document()))
    document = {
        **best.document,
        "measured_top": [one.to_document() for one in found],
        "calibration": calibration.name,
    }
    return replace(report, execute=document), reported[best.plan.hash]


def _refuse_run_flags(given: dict[str, Any]) -> None:
    for name in ("steps", "verify", "measure_top"):
        if given[name]:
            flag, value = f"--{name.replace('_', '-')}", "it" if name == "verify" else given[name]
            near = f"--execute {flag}" + ("" if name == "verify" else f" {value}")
            raise InputError(flag, f"{value} without --execute", "--execute beside it", near)


def _search(
    problem: Problem,
    pins: tuple[Pin, ...],
    given: dict[str, Any],
    rule: MemoryRule,
    prefer: Preference,
) -> Report:
    from ..planning.plan_and_simulate import search_plan

    unit = "s"
    if problem.prices is not None and problem.objective_choice.objective == "cost":
        unit = f"{problem.prices.currency} a step"
    with ProgressLine("searching", "shapes") as line:

        def progress(seen: int, shapes: int, best: float) -> None:
            found = f"best {best:.4g} {unit}" if best < float("inf") else "nothing fits yet"
            line(seen, shapes, found)

        return search_plan(
            problem,
            pins,
            top=_alternatives(given),
            deadline_s=given["deadline"],
            risk=rule.risk,
            executable=given["execute"],
            progress=progress,
            prefer=prefer,
        )


def _alternatives(given: dict[str, Any]) -> int:
    """How many other plans to keep: what is shown, and what is to be measured."""
    shown = DEFAULT_TOP if given["top"] is None else int(given["top"])
    return max(shown, (given["measure_top"] or 1) - 1)


def _search_galvatron(
    problem: Problem, pins: tuple[Pin, ...], given: dict[str, Any], rule: MemoryRule
) -> Report:
    from ..planning.galvatron_search import galvatron_plan

    top = _alternatives(given)
    return galvatron_plan(problem, given["galvatron_profile"], top, given["deadline"])


def _emit(
    report: Report, given: dict[str, Any], rule: MemoryRule, steps: list[dict[str, Any]]
) -> None:
    def show(out: Console) -> None:
        from ..terminal.plan import print_report
        from ..terminal.run import print_execution

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
