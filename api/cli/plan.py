"""Bare ``plan``: search, show, write, and optionally run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from ...spec.inputs.preference import simple_within
from .errors import InterruptedRunError
from .flags import RUN_FLAGS, typed_inputs
from .output import ProgressLine, check_targets, emit, write_file
from .stopped import end_if_stopped

if TYPE_CHECKING:
    from rich.console import Console

    from ...costmodel.memory.feasibility import MemoryRule
    from ...planner.solve.options import SolveOptions
    from ...planner.solve.problem import Problem
    from ...spec.plan.plan import Plan
    from ...spec.report.report import Report
    from ..execution.execution import ExecuteOptions
    from ..problem.resolve import Inputs

DEFAULT_TOP = 3
ONE_RUN_FLAGS = ("trace", "dry_run", "routing_trace", "out_dir", "save_hf", "checkpoint", "resume")
"""Flags of a single run, which those of ``--measure-top`` would overwrite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    problem: Problem
    options: SolveOptions
    rule: MemoryRule
    galvatron: bool
    run: ExecuteOptions | None
    free: Problem | None = None


@dataclass(frozen=True, slots=True)
class _ShapeProgress:
    line: ProgressLine
    unit: str

    def __call__(self, seen: int, shapes: int, best: float) -> None:
        text = f"best {best:.4g} {self.unit}" if best < float("inf") else "nothing fits yet"
        self.line(seen, shapes, text)


def plan_command(flags: dict[str, Any]) -> None:
    """Search as the flags say, and answer.

    Raises:
        InputError: flags that cannot be used.
        InfeasibleError: nothing fits.
        RunError: the plan was found, and its run failed.
    """
    from ...planner.solve.garbage_collection import garbage_collection_paused
    from ...spec.codec import dump_pretty
    from ..planning.solved_report import solved_report
    from ..planning.training import trained_report

    request = _resolve(flags)
    problem, options = request.problem, request.options
    # Until the answer is out: the objects of a search are many.
    with garbage_collection_paused(leaves=True):
        if request.galvatron:
            from ..planning.galvatron_report import galvatron_report

            report = galvatron_report(problem, flags["galvatron_profile"], options)
        else:
            with ProgressLine("searching", "shapes") as line:
                progress = _ShapeProgress(line, _objective_unit(problem))
                options = replace(options, progress=progress)
                report = solved_report(problem, options, request.free)
        report = trained_report(report, flags["tokens"])
        if flags["out"]:
            write_file(flags["out"], dump_pretty(_written(report, request)))
        steps: list[dict[str, Any]] = []
        rehearsed: dict[str, Any] | None = None
        if request.run is not None and flags["dry_run"]:
            from ..execution.dry_run import dry_run

            rehearsed = dry_run(report.plan, request.run.steps, flags["out"] or "PLAN.json")
        elif request.run is not None:
            report, steps = _run(report, request, request.run, flags)
        _emit(report, flags, request.rule.measured_by(problem.measured), steps, rehearsed)
        end_if_stopped(report.execute or {})


def _written(report: Report, request: _Request) -> dict[str, Any]:
    from ..problem.report_pricing import priced_document

    problem, risk = request.problem, request.options.risk
    return priced_document(report, problem.stack, problem.measured, risk)


def _resolve(flags: dict[str, Any]) -> _Request:
    """Resolve the flags into a request.

    Raises:
        InputError: flags that cannot be used.
    """
    from ...planner.solve.options import SolveOptions
    from ..planning.galvatron_flags import GALVATRON_RULE, OUR_COSTS_NOTE, uses_galvatron_costs
    from ..planning.report import memory_rule
    from ..problem.pins import resolve_pins
    from ..problem.resolve import Inputs, resolve

    check_targets(
        out=flags["out"],
        json=flags["json_target"],
        trace=flags["trace"],
        routing_trace=flags["routing_trace"],
    )
    run = _run_options(flags)
    rule = memory_rule(flags["oom_risk"])
    within = simple_within(flags["prefer"])
    inputs = Inputs(**typed_inputs(flags))
    galvatron = uses_galvatron_costs(flags)
    problem, free = resolve(inputs), None
    if flags["framework"] is not None:
        problem, free = _kept_to(flags, inputs)
    if flags["galvatron_profile"] and not galvatron:
        problem = replace(problem, assumptions=(*problem.assumptions, OUR_COSTS_NOTE))
    if flags["execute"]:
        from .execute import measured, require_executable_problem

        require_executable_problem(problem)
    pins = resolve_pins(flags["pins"], problem, flags["execute"])
    if flags["execute"]:
        problem = measured(inputs, problem)
    options = SolveOptions(
        pins=pins,
        top=_alternative_count(flags),
        deadline_s=flags["deadline"],
        risk=rule.risk,
        executable=flags["execute"],
        simple_within=within,
    )
    return _Request(
        problem=problem,
        options=options,
        rule=GALVATRON_RULE if galvatron else rule,
        galvatron=galvatron,
        run=run,
        free=free,
    )


def _kept_to(flags: dict[str, Any], inputs: Inputs) -> tuple[Problem, Problem]:
    from ..frameworks.keep_to import kept_to, refuse_beside

    name = flags["framework"]
    refuse_beside(name, **{key: bool(flags[key]) for key in ("execute", "galvatron_profile")})
    return kept_to(name, inputs)


def _objective_unit(problem: Problem) -> str:
    if problem.prices is not None and problem.objective_choice.objective == "cost":
        return f"{problem.prices.currency} a step"
    return "s"


@dataclass(frozen=True, slots=True)
class _PlanRunner:
    """Run plans on this machine, keeping each one's steps by hash."""

    problem: Problem
    options: ExecuteOptions
    one_of_several: bool
    steps: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __call__(self, plan: Plan) -> dict[str, Any]:
        from .execute import run_plan

        stack, measured, notes = self.problem.stack, self.problem.measured, self.problem.assumptions
        document, self.steps[plan.hash] = run_plan(plan, stack, measured, notes, self.options)
        if "stopped" in document and self.one_of_several:
            raise InterruptedRunError("stopped before all plans were measured")
        return document


def _run(
    report: Report, request: _Request, options: ExecuteOptions, flags: dict[str, Any]
) -> tuple[Report, list[dict[str, Any]]]:
    """Report and steps of a run, or the fastest of several.

    Of several runs the fastest one's plan is written to ``--out``.
    """
    problem = request.problem
    runner = _PlanRunner(problem, options, bool(flags["measure_top"]))
    if not flags["measure_top"]:
        return replace(report, execute=runner(report.plan)), runner.steps[report.plan.hash]
    from ...spec.codec import dump_pretty
    from ..execution.measure_top import check_count, measure_plans
    from ..planning.report import simulate_plan

    plans = [report.plan, *(other.plan for other in report.alternatives)]
    chosen = list({plan.hash: plan for plan in plans}.values())[: check_count(flags["measure_top"])]
    runs, calibration = measure_plans(chosen, problem.stack, problem.measured, runner)
    best = runs[0]
    if flags["out"]:
        stack, measured, notes = problem.stack, problem.measured, problem.assumptions
        priced = simulate_plan(best.plan, stack, measured, notes, request.options.risk).report
        write_file(flags["out"], dump_pretty(_written(priced, request)))
    document = {
        **best.document,
        "measured_top": [one.to_document() for one in runs],
        "calibration": calibration.name,
    }
    return replace(report, execute=document), runner.steps[best.plan.hash]


def _run_options(flags: dict[str, Any]) -> ExecuteOptions | None:
    """Options of the run; None without one.

    Raises:
        InputError: flags of a run without ``--execute``, or of one run for several.
    """
    given = [name for name in (*RUN_FLAGS, "measure_top") if flags[name]]
    if not flags["execute"]:
        for name in given:
            flag, value = f"--{name.replace('_', '-')}", flags[name]
            shown, near = ("it", flag) if value is True else (value, f"{flag} {value}")
            allowed = "--execute beside it"
            raise InputError(flag, f"{shown} without --execute", allowed, f"--execute {near}")
        return None
    for name in [name for name in given if flags["measure_top"] and name in ONE_RUN_FLAGS]:
        flag = f"--{name.replace('_', '-')}"
        raise InputError(flag, "several runs", f"one run: no --measure-top beside {flag}")
    from .execute import run_options

    return run_options(flags)


def _alternative_count(flags: dict[str, Any]) -> int:
    shown = DEFAULT_TOP if flags["top"] is None else int(flags["top"])
    return max(shown, (flags["measure_top"] or 1) - 1)


def _emit(
    report: Report,
    flags: dict[str, Any],
    rule: MemoryRule,
    steps: list[dict[str, Any]],
    rehearsed: dict[str, Any] | None,
) -> None:
    def show(out: Console) -> None:
        from ..terminal.plan import print_report
        from ..terminal.run import print_dry_run, print_execution

        print_report(out, report, rule, _next_steps(report, flags))
        if rehearsed is not None:
            out.print()
            print_dry_run(out, rehearsed)
        if report.execute is not None:
            out.print()
            print_execution(out, report.execute, steps)

    document = report.to_document()
    if rehearsed is not None:
        document["dry_run"] = rehearsed
    emit(document, flags["json_target"], show)


def _next_steps(report: Report, flags: dict[str, Any]) -> list[str]:
    path = flags["out"]
    if path is None:
        return ["the same with --out plan.json, then plan explain plan.json"]
    commands = [f"plan explain {path}", f"plan simulate {path} --trace trace.json"]
    if report.plan.cluster.groups[0].node == "local" and not flags["execute"]:
        commands.append(f"plan execute {path}")
    return commands
