"""Python handles of plans and simulations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...costmodel.memory.feasibility import DEFAULT_RISK
from ...costmodel.simulation.timeline import simulated_timeline
from ...spec.choices import KernelPolicy
from ...spec.cluster.measured import Measured
from ...spec.cluster.stack_spec import StackSpec
from ...spec.codec import dump_pretty, write_atomically
from ...spec.plan.plan import Plan
from ...spec.report.report import Alternative, Prediction, Report
from ...spec.report.timeline import Timeline
from ...spec.units import format_seconds
from ..html.report import report_html
from ..planning.report import Simulated, simulate_plan
from ..problem.report_pricing import priced_document
from ..views.explanation import explain_report
from ..views.report_text import shape_text
from .explanation_handle import ExplanationHandle, explanation_handle
from .frames import Rows, report_frame
from .measured_cores import measured_cores
from .run_result import RunResult
from .timeline_handle import TimelineHandle, timeline_handle

if TYPE_CHECKING:
    from ...executor.checkpoint.settings import CheckpointSettings
    from ...executor.checkpoint.storage.paths import CheckpointPath
    from .plots.canvas import Picture


@dataclass(frozen=True, kw_only=True)
class PlanHandle:
    """A plan with its prediction.

    ``stack`` and ``measured`` priced it, and ``risk`` is the accepted chance of running out of
    memory; simulating and running reuse them.
    """

    report: Report
    stack: StackSpec
    measured: Measured | None = None
    risk: float = DEFAULT_RISK

    @property
    def plan(self) -> Plan:
        """The decisions."""
        return self.report.plan

    @property
    def prediction(self) -> Prediction:
        """Time, throughput and memory of a step."""
        return self.report.prediction

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Other plans that the search reports, each with its prediction and why it lost."""
        return self.report.alternatives

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that ``plan --json`` writes."""
        return self.report.to_document()

    def save(self, path: str | Path) -> Path:
        """Write the plan atomically, in its report if it was not priced as usual.

        Raises:
            InputError: the file cannot be written.
        """
        target = Path(path).expanduser()
        document = priced_document(self.report, self.stack, self.measured, self.risk)
        write_atomically(target, dump_pretty(document))
        return target

    def export(self, to: str, folder: str | Path | None = None) -> dict[str, Any]:
        """Write the plan as a framework's files; return the document of ``plan export --json``.

        Args:
            to: a framework whose files are written, such as megatron or verl.
            folder: where to write them, made if it is missing; None: nowhere.

        Raises:
            InputError: no such framework, or a plan that it has no words for.
        """
        from ..frameworks.export_plan import export_plan
        from ..frameworks.shipped import framework_named

        framework = framework_named(to, "to", written=True)
        made = export_plan(self.plan, self.stack, self.measured, framework)
        if folder is not None:
            target = Path(folder).expanduser()
            target.mkdir(exist_ok=True)
            for name, text in made.files.items():
                write_atomically(target / name, text)
        return made.to_document()

    def simulate(self) -> SimulationHandle:
        """Simulate the same plan again, with its timeline."""
        notes = self.report.assumptions
        simulated = simulate_plan(self.plan, self.stack, self.measured, notes, self.risk)
        return simulation_handle(simulated, self.stack, self.measured, self.risk)

    def explain(self) -> ExplanationHandle:
        """Explain step and memory in terms that add up."""
        notes = self.report.assumptions
        simulated = simulate_plan(self.plan, self.stack, self.measured, notes, self.risk)
        explanation = explain_report(simulated.report, simulated.simulation, simulated.simulator)
        return explanation_handle(explanation)

    def to_frame(self, rows: Rows = "memory") -> Any:
        """Return a DataFrame.

        Args:
            rows: ``terms`` of the step, which add up to it; ``memory``, bytes by stage and memory
                tier; ``stages``; or ``layers``, a row a run of equal layers.

        Raises:
            InputError: another word, or pandas is not installed.
        """
        return report_frame(self.report, rows)

    def plot(self) -> Picture:
        """Draw the terms of the step and the memory of each stage.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.plans import plan_picture

        return plan_picture(self.report)

    def memory_plot(self) -> Picture:
        """Draw the memory of each stage by term.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.plans import memory_picture

        return memory_picture(self.report)

    def execute(
        self,
        steps: int = 20, *,
        verify: bool = False, data: str | None = None, tokenizer: str | None = None,
        kernels: KernelPolicy = "auto", trace: Path | None = None, lr: str | float | None = None,
        init_from: str | Path | None = None, save_hf: str | Path | None = None,
        out_dir: str | Path | None = None, routing_trace: str | Path | None = None,
        checkpoint: Path | str | None = None, every: int | None = None,
        resume: Path | str | None = None, new_stage: bool = False,
    ) -> RunResult:  # fmt: skip
        """Run the plan on this machine; return the contract's ``execute`` document.

        Interrupted, the run ends after a step, and says so under ``stopped``. Unprofiled cores are
        measured first, for some 20 s, and ``predicted`` is by that profile.

        Args:
            steps: optimizer step to reach.
            verify: compare losses and gradients with a single process.
            data: text file or folder, or token numbers; Python's own sources if None.
            tokenizer: a ``tokenizer.json`` for the data.
            kernels: auto, portable or fused.
            trace: file for a traced step and its memory in Perfetto's format.
            lr: learning rate, as ``--lr`` takes it; the usual one if None.
            init_from: checkpoint of any kind to start from, a folder or a URL.
            save_hf: folder of transformers to write.
            out_dir: folder of ``losses.csv``, that of the checkpoints if None.
            routing_trace: CSV file to write each expert's rows in, for ``expert_load``.
            checkpoint: folder to save checkpoints in.
            every: steps between them.
            resume: folder of checkpoints to resume from, saved under any plan of the model.
            new_stage: with weights and moments of ``resume`` alone, steps counted from 0.

        Raises:
            InputError: the plan cannot run on this machine.
            RunError: the run failed.
        """
        from ...spec.workload.learning_rate import learning_rate
        from ..execution.execution import ExecuteOptions, execute_plan, require_folders
        from ..problem.this_machine import require_executable

        require_executable(self.plan, "plan")
        options = ExecuteOptions(
            steps=steps,
            verify=verify,
            data=data,
            tokenizer=tokenizer,
            kernels=kernels,
            trace_file=trace,
            learning_rate=learning_rate(None if lr is None else str(lr)),
            init_from=_source(init_from),
            save_hf=_absolute(save_hf),
            out_dir=_absolute(out_dir),
            routing_trace=_absolute(routing_trace),
            checkpoint=_checkpoints(checkpoint, every, resume, new_stage),
        )
        require_folders(self.plan, options)
        notes, taken = self.report.assumptions, list[dict[str, Any]]()
        measured = measured_cores(self.report) if self.measured is None else self.measured
        ran = execute_plan(self.plan, self.stack, measured, options, _keeps_steps(taken), notes)
        return RunResult(ran, taken)

    def __repr__(self) -> str:
        fits = "" if self.prediction.feasible else ", does not fit"
        step = format_seconds(self.prediction.step_time_s)
        kind = type(self).__name__.removeprefix("Service")
        return f"<{kind} {self.plan.model.name}: {shape_text(self.plan)}; step {step}{fits}>"

    def _repr_html_(self) -> str:
        return report_html(self.report)


@dataclass(frozen=True, kw_only=True, repr=False)
class SimulationHandle(PlanHandle):
    """A simulated plan; ``spans`` gives the events behind its report."""

    spans: Callable[[], Timeline] = field(repr=False, compare=False)

    @cached_property
    def timeline(self) -> TimelineHandle:
        """Spans of the simulated step; ``timeline.to_perfetto()`` is its trace."""
        return timeline_handle(self.spans())

    def plot(self) -> Picture:
        """Draw the timeline of the step; ``explain().plot()`` draws its terms.

        Raises:
            InputError: matplotlib is not installed.
        """
        return self.timeline.plot()


def simulation_handle(
    simulated: Simulated, stack: StackSpec, measured: Measured | None, risk: float
) -> SimulationHandle:
    """Handle of a plan simulated here."""
    return SimulationHandle(
        report=simulated.report,
        stack=stack,
        measured=measured,
        risk=risk,
        spans=lambda: simulated_timeline(simulated.simulation, simulated.simulator),
    )


def _keeps_steps(taken: list[dict[str, Any]]) -> Callable[[dict[str, Any]], None]:
    def on_event(event: dict[str, Any]) -> None:
        if event.get("event") == "step":
            taken.append(event)

    return on_event


def _checkpoints(
    folder: Path | str | None, every: int | None, resume: Path | str | None, new_stage: bool
) -> CheckpointSettings:
    from ...executor.checkpoint.settings import CheckpointSettings

    target, source = (None if path is None else str(path) for path in (folder, resume))
    return CheckpointSettings(folder=target, every=every, resume=source, new_stage=new_stage)


def _source(path: str | Path | None) -> CheckpointPath | None:
    from ...executor.checkpoint.storage.far_path import is_url
    from ...executor.checkpoint.storage.paths import checkpoint_path

    is_far = path is not None and is_url(str(path))
    return checkpoint_path(str(path)) if is_far else _absolute(path)


def _absolute(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).expanduser().absolute()
