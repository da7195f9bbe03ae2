"""``plan execute`` and ``plan --execute``: a run, compared with its prediction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...executor.checkpoint.storage.far_path import is_url
from ...spec.errors import InputError, one_of
from .output import ProgressLine, check_targets, emit, note
from .stopped import end_if_stopped

if TYPE_CHECKING:
    from ...executor.checkpoint.settings import CheckpointSettings
    from ...executor.checkpoint.storage.paths import CheckpointPath
    from ...planner.solve.problem import Problem
    from ...spec.cluster.measured import Measured
    from ...spec.cluster.stack_spec import StackSpec
    from ...spec.plan.plan import Plan
    from ...spec.report.report import Assumption
    from ...spec.workload.workload import Workload
    from ..execution.execution import ExecuteOptions
    from ..problem.resolve import Inputs

DEFAULT_STEPS = 20


def execute_command(flags: dict[str, Any]) -> None:
    """Run the plan in a file.

    Raises:
        InputError: no usable plan, or one for another machine.
        RunError: the run failed.
    """
    from rich.console import Console

    from ..execution.execution import require_folders
    from ..problem.report_pricing import read_document, run_pricing
    from ..problem.this_machine import require_built, require_executable
    from ..terminal.run import print_dry_run, print_execution

    check_targets(
        json=flags["json_target"], trace=flags["trace"], routing_trace=flags["routing_trace"]
    )
    options = run_options(flags)
    path = flags["plan_file"]
    if path is None:
        raise InputError("PLAN.json", "nothing", "a plan file", "plan execute plan.json")
    given = read_document(path)
    plan = given.plan
    if flags["dry_run"]:
        from ..execution.dry_run import dry_run

        require_built(plan, path)
        document = dry_run(plan, options.steps, path)
        emit(document, flags["json_target"], lambda out: print_dry_run(out, document))
        return
    require_executable(plan, path)
    require_folders(plan, options)
    _measure_unprofiled(plan.cluster.device_count, plan.cluster.groups[0].device)
    stack, measured, notes = run_pricing(given)
    document, steps = run_plan(plan, stack, measured, notes, options)

    def show(out: Console) -> None:
        print_execution(out, document, steps)

    emit(document, flags["json_target"], show)
    end_if_stopped(document)


def _unsupported_flag(workload: Workload) -> tuple[str, str]:
    from ...spec.rules.plan_rules import unsupported_dtype
    from ...spec.workload.number_formats import STATE_ROLES, USUAL_STATES

    record = workload.dtype
    for name, roles in STATE_ROLES.items():
        if record.matmul is None and any(getattr(record, role) != USUAL_STATES for role in roles):
            return f"--{name.replace('_', '-')}", record.state_word(name)
    if unsupported_dtype(record):
        return "--dtype", record.shorthand
    if workload.optimizer != "adamw":
        return "--optimizer", workload.optimizer
    return "--trainable", "frozen" if workload.trainable == "full" else "lora"


def require_executable_problem(problem: Problem) -> None:
    """Refuse a problem that ``plan --execute`` could not run here.

    Raises:
        InputError: another machine's devices, or an unsupported model or number format.
    """
    from ...datasets.models.load import DEFAULT_MODEL
    from ...spec.rules.executable import unsupported_model, unsupported_strategy
    from ...spec.rules.plan_rules import unsupported_run
    from ...spec.strategy import LayerStrategy
    from ..problem.this_machine import require_devices

    require_devices(problem.cluster, "--cluster with --execute")
    if reason := unsupported_model(problem.model, problem.workload.seq_len):
        allowed = f"what --execute can run ({reason})"
        raise InputError("--model", problem.model.name, allowed, DEFAULT_MODEL)
    plain, model, workload = LayerStrategy(), problem.model, problem.workload
    if reason := unsupported_run(plain, workload) or unsupported_strategy(model, plain, workload):
        flag, value = _unsupported_flag(problem.workload)
        raise InputError(flag, value, f"what --execute can run ({reason})")


def measured(inputs: Inputs, problem: Problem) -> Problem:
    """The problem priced by measurement.

    A machine without a profile is measured for a few seconds first.
    """
    from ..problem.resolve import resolve

    if problem.measured is not None or inputs.calibration == "none":
        return problem
    group = problem.cluster.groups[0]
    return resolve(inputs) if _measure_unprofiled(group.device_count, group.device) else problem


def _measure_unprofiled(ranks: int, device: str) -> bool:
    from ...datasets.catalogue.device import CPU
    from ...profiler.store.profiles import newest_profile
    from ..execution.execution import ensure_profile

    if device != CPU or newest_profile(ranks) is not None:
        return False
    with ProgressLine("measuring", "rows") as line:
        ensure_profile(ranks, profile_progress(line))
    return True


def profile_progress(line: ProgressLine) -> Callable[[dict[str, Any]], None]:
    """A listener that shows the measurement's progress on ``line``."""

    def on_event(event: dict[str, Any]) -> None:
        if event.get("phase") == "profile":
            note(
                f"no profile of this machine yet: measuring it for up to {event['budget_s']:g} s "
                "(plan profile measures longer and better)"
            )
        if event.get("phase") == "unsaved":
            note(f"the measurement serves this run alone, for it cannot be kept: {event['why']}")
        line(int(event.get("done", 0)), event.get("total"), str(event.get("phase", "")))

    return on_event


def _absolute_path(typed: str | None) -> Path | None:
    return None if typed is None else Path(typed).expanduser().absolute()


def absolute_or_url(typed: str | None) -> str | None:
    """A typed folder: a URL as it is, a path from the root."""
    return typed if typed is None or is_url(typed) else str(_absolute_path(typed))


def _source(typed: str | None) -> CheckpointPath | None:
    from ...executor.checkpoint.storage.paths import checkpoint_path

    place = absolute_or_url(typed)
    return None if place is None else checkpoint_path(place)


def _checkpoint_settings(flags: dict[str, Any]) -> CheckpointSettings:
    from ...executor.checkpoint.settings import KEEP, CheckpointSettings

    folder, resume = (absolute_or_url(flags.get(name)) for name in ("checkpoint", "resume"))
    keep = flags.get("keep") or KEEP
    return CheckpointSettings(
        folder=folder,
        every=flags.get("every"),
        keep=keep,
        resume=resume,
        new_stage=bool(flags.get("new_stage")),
    )


def run_options(flags: dict[str, Any]) -> ExecuteOptions:
    """Options of a run from its flags.

    Raises:
        InputError: the first that cannot be used.
    """
    from ...spec.choices import KERNEL_POLICIES
    from ...spec.workload.learning_rate import learning_rate
    from ..execution.execution import ExecuteOptions

    return ExecuteOptions(
        steps=int(flags["steps"] or DEFAULT_STEPS),
        verify=flags["verify"],
        data=flags["data"],
        tokenizer=flags["tokenizer"],
        learning_rate=learning_rate(flags["lr"]),
        kernels=one_of("--kernels", flags["kernels"] or "auto", KERNEL_POLICIES),
        trace_file=_absolute_path(flags["trace"]),
        init_from=_source(flags["init_from"]),
        save_hf=_absolute_path(flags["save_hf"]),
        out_dir=_absolute_path(flags["out_dir"]),
        routing_trace=_absolute_path(flags["routing_trace"]),
        checkpoint=_checkpoint_settings(flags),
    )


def run_plan(
    plan: Plan,
    stack: StackSpec,
    measured: Measured | None,
    assumptions: tuple[Assumption, ...],
    options: ExecuteOptions,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a plan; return the execute document and the steps' events.

    Without a terminal every step is a line on standard error.

    Raises:
        RunError: the run failed.
    """
    from ...executor.launch.run_text import step_line
    from ..execution.execution import execute_plan

    steps: list[dict[str, Any]] = []
    with ProgressLine("training", "steps") as line:

        def on_event(event: dict[str, Any]) -> None:
            if event.get("event") == "step":
                steps.append(event)
                line(int(event["step"]), options.steps, f"loss {event['loss']:.4f}")
                if not line.is_shown:
                    note(step_line(event))
            elif event.get("event") == "note":
                note(event["text"])

        return execute_plan(plan, stack, measured, options, on_event, assumptions), steps
