"""A measured run: its plan, what prices it, and its measured step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.report.report import Assumption
from ..frameworks.framework import Framework
from ..frameworks.framework_file import FrameworkFile, framework_file, read_framework_file
from ..frameworks.import_plan import ImportedPlan, imported
from ..frameworks.shipped import FRAMEWORKS, framework_named, framework_of, kinds_of
from ..planning.report import memory_rule
from ..problem.model_and_cluster import cluster_of
from ..problem.report_pricing import PlanDocument, document_from_text, read_document
from ..problem.resolve import Inputs, plan_pricing
from .logs.read_log import TITLES, log_from_text, read_log
from .logs.run_log import RunLog
from .step_noise import StepNoise, TimedStep, step_noise
from .trainer_framework import TRAINER

CONFIGURATIONS = (".toml", ".yaml", ".yml", ".json", ".py", ".args")
"""Files that are configurations or plans; all others are logs."""
STEP_FLAG, RATE_FLAG, CONFIG_FLAG = "--measured-step", "--tokens-per-s", "--config"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion:
    """A question of ``plan diagnose``.

    ``path``: a log, a framework's configuration or a plan. ``config``: the configuration or plan
    of a log that prints none. ``given`` and ``strategy``: flags that the file leaves out.
    ``measured_s`` and ``tokens_per_s`` (of all devices) say the measured figure, and replace a
    log's. ``risk`` is the accepted chance of running out of memory. ``texts``: contents of the two
    files by name, in place of the disk's; with them no file is opened.
    """

    path: str
    config: str | None = None
    framework: str | None = None
    given: Inputs = field(default_factory=Inputs)
    strategy: Mapping[str, Any] = field(default_factory=dict)
    measured_s: float | None = None
    tokens_per_s: float | None = None
    risk: float | None = None
    texts: Mapping[str, str] | None = None

    def framework_file(self, path: str) -> FrameworkFile:
        """A file of this question as flat keys.

        Raises:
            InputError: missing, of no known form, or malformed.
        """
        if self.texts is None:
            return read_framework_file(path)
        return framework_file(self.texts[path], path, alone=True)

    def log(self) -> RunLog:
        """The log of this question.

        Raises:
            InputError: missing, or no step times in it.
        """
        if self.texts is None:
            return read_log(self.path)
        return log_from_text(self.texts[self.path], self.path)

    def plan_document(self, path: str) -> PlanDocument:
        """A file of this question as a plan.

        Raises:
            InputError: missing, or no usable plan.
        """
        if self.texts is None:
            return read_document(path)
        return document_from_text(self.texts[path], path)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A plan, the stack and measurements that price it, and its measured seconds.

    ``framework`` is None where no file of one was read; ``log_kind`` is that of a log, or empty.
    """

    name: str
    plan: Plan
    stack: StackSpec
    measured: Measured | None
    assumptions: tuple[Assumption, ...]
    risk: float
    framework: Framework | None
    measured_s: float
    noise: StepNoise | None = None
    log_kind: str = ""
    peak_bytes: float | None = None
    peak_of: str = ""
    ignored: tuple[str, ...] = ()


def measured_run(question: RunQuestion) -> MeasuredRun:
    """Read a run.

    Raises:
        InputError: no usable log, configuration or plan, no measured figure, or flags that the
            file decides.
    """
    _check_figures(question)
    if Path(question.path).suffix.casefold() in CONFIGURATIONS:
        if question.config is not None:
            allowed = f"nothing beside {question.path}, which is a configuration"
            raise InputError(CONFIG_FLAG, question.config, allowed)
        made = _configured(question.path, question)
        return _with_figure(made, question, None)
    log = question.log()
    if question.config is not None:
        made = _configured(question.config, question)
    else:
        made = _configured_by(log, question)
    return _with_figure(made, question, log)


def _check_figures(question: RunQuestion) -> None:
    for flag, value in ((STEP_FLAG, question.measured_s), (RATE_FLAG, question.tokens_per_s)):
        if value is not None and not value > 0:
            raise InputError(flag, value, "a number above 0", 1.5)
    if question.measured_s is not None and question.tokens_per_s is not None:
        raise InputError(RATE_FLAG, question.tokens_per_s, f"nothing beside {STEP_FLAG}")


def _configured(path: str, question: RunQuestion) -> MeasuredRun:
    """The run of a configuration or a plan, without its measured step."""
    if _is_plan(path, question):
        return _planned(path, question)
    file = question.framework_file(path)
    framework = framework_of(file, question.framework)
    return _imported(imported(file, framework, question.given, question.strategy), path, question)


def _is_plan(path: str, question: RunQuestion) -> bool:
    if question.framework is not None or Path(path).suffix.casefold() != ".json":
        return False
    try:
        return not kinds_of(question.framework_file(path))
    except InputError:  # the reader of plans says what is wrong with it
        return True


def _planned(path: str, question: RunQuestion) -> MeasuredRun:
    given = question.given
    beside = {"--cluster": given.cluster, "--model": given.model,
              "--global-batch": given.global_batch, "--seq-len": given.seq_len}  # fmt: skip
    for flag, value in beside.items():
        if value is not None:
            raise InputError(flag, value, f"nothing beside {path}, which decides it")
    document = question.plan_document(path)
    inputs = document.inputs(given)
    stack, measured, notes = plan_pricing(document.plan, inputs)
    return MeasuredRun(
        name=path,
        plan=document.plan,
        stack=stack,
        measured=measured,
        assumptions=notes,
        risk=memory_rule(document.risk(question.risk)).risk,
        framework=_of_stack(stack),
        measured_s=0.0,
    )


def _of_stack(stack: StackSpec) -> Framework | None:
    """The framework whose stack priced a plan, if there is one."""
    base = stack.name.partition(":")[0]
    return next((item for item in FRAMEWORKS if item.stack == base and item.write), None)


def _imported(read: ImportedPlan, path: str, question: RunQuestion) -> MeasuredRun:
    return MeasuredRun(
        name=path,
        plan=read.plan,
        stack=read.problem.stack,
        measured=read.problem.measured,
        assumptions=read.assumptions,
        risk=memory_rule(question.risk).risk,
        framework=read.framework,
        measured_s=0.0,
        ignored=read.ignored,
    )


def _configured_by(log: RunLog, question: RunQuestion) -> MeasuredRun:
    """The run of the configuration that a log prints."""
    path = question.path
    if not log.keys:
        title = TITLES[log.kind]
        allowed = f"a log of {title} that prints its configuration, or {CONFIG_FLAG} FILE beside it"
        raise InputError(path, "no configuration", allowed, f"{CONFIG_FLAG} train.toml")
    _check_world(log, question)
    framework = TRAINER if log.kind == "trainer" else framework_named(log.kind, "--from")
    alone = question.texts is not None
    file = FrameworkFile(path=path, form=log.form, keys=log.keys, alone=alone)
    return _imported(imported(file, framework, question.given, question.strategy), path, question)


def _check_world(log: RunLog, question: RunQuestion) -> None:
    """Refuse a cluster of another number of devices than the log's."""
    size, cluster = log.keys.get("world_size"), question.given.cluster
    if not isinstance(size, int) or cluster is None:
        return
    count = cluster_of(cluster).cluster.device_count
    if count != size:
        allowed = f"the {size} devices of {question.path} (world_size)"
        raise InputError("--cluster", f"{count} devices", allowed)


def _with_figure(made: MeasuredRun, question: RunQuestion, log: RunLog | None) -> MeasuredRun:
    work = made.plan.workload
    noise = None if log is None else step_noise(_timed(log, made.plan))
    if question.measured_s is not None:
        seconds: float | None = question.measured_s
    elif question.tokens_per_s is not None:
        seconds = work.tokens_per_step / question.tokens_per_s
    else:
        seconds = None if noise is None else noise.mean_s
    if seconds is None:
        allowed = f"the seconds of a measured step, or {RATE_FLAG} of all devices"
        raise InputError(STEP_FLAG, "nothing", allowed, 1.5)
    typed = question.measured_s is not None or question.tokens_per_s is not None
    return replace(
        made,
        measured_s=seconds,
        noise=None if typed else noise,
        log_kind="" if log is None else log.kind,
        peak_bytes=None if log is None else log.peak_bytes,
        peak_of="" if log is None else log.peak_of,
    )


def _timed(log: RunLog, plan: Plan) -> list[TimedStep]:
    """Seconds of a log's steps, whatever it counts."""
    work = plan.workload
    devices = plan.cluster.device_count
    amount = {
        "seconds": 0.0,
        "samples_per_s": float(work.global_batch),
        "tokens_per_s_per_device": work.tokens_per_step / devices,
    }[log.unit]
    return [
        TimedStep(step.step, amount / step.value if amount else step.value, step.count)
        for step in log.steps
    ]
