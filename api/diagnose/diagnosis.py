"""Diagnosis of a measured run: where its step goes, and what would make it shorter."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...planner.solve.garbage_collection import garbage_collection_paused
from ...spec.report.report import MemoryRow, Report
from ..html.diagnosis import diagnosis_html
from ..planning.report import simulate_plan
from ..views.report_text import peak_memory_row
from .changes import ChangeSearch, RankedChanges
from .kineto_trace import TracedStep, predicted_parts, read_trace
from .measured_run import MeasuredRun, RunQuestion, measured_run
from .waterfall import Waterfall, waterfall

LITTLE = 0.5
"""Fraction of the loss below which the configuration does not explain it."""
NOISY = 1.2
"""99th percentile over the median from which steps are noisy."""
NEARLY_FULL = 0.95
"""Fraction of a device from which its allocator may have to start over."""
APART = 0.1
"""Difference of a part of the step, over the step, that is worth looking into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A run with its waterfall, noise, trace and changes.

    ``measure_next``: what to measure, the most telling first; empty where the configuration
    explains the step.
    """

    run: MeasuredRun
    report: Report
    waterfall: Waterfall
    changes: RankedChanges
    trace: TracedStep | None
    measure_next: tuple[str, ...]

    @property
    def explains(self) -> bool:
        """True if the configuration explains at least half of the loss."""
        return self.waterfall.explained >= LITTLE

    @property
    def peak_row(self) -> MemoryRow:
        """Memory of the fullest device."""
        return peak_memory_row(self.report.prediction)

    def _repr_html_(self) -> str:
        return diagnosis_html(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form, a stable contract (docs/diagnosing.md)."""
        run, changes = self.run, self.changes
        return {
            "plan": self.report.plan.to_document(),
            "plan_hash": self.report.plan.hash,
            "source": run.name,
            "framework": None if run.framework is None else run.framework.name,
            "log": run.log_kind or None,
            "prediction": self.report.prediction.to_document(),
            "waterfall": self.waterfall.to_document(),
            "explains": self.explains,
            "measure_next": list(self.measure_next),
            "noise": None if run.noise is None else run.noise.to_document(),
            "memory": {
                "measured_bytes": run.peak_bytes,
                "measured_count": run.peak_of or None,
                "predicted": asdict(self.peak_row),
            },
            "trace": None if self.trace is None else self.trace.to_document(),
            "changes": {
                "alone": [item.to_document() for item in changes.alone],
                "together": None if changes.together is None else changes.together.to_document(),
                "priced": changes.priced,
                "why_none": changes.why_none,
            },
            "ignored": list(run.ignored),
            "assumptions": [asdict(note) for note in self.report.assumptions],
            "provenance": asdict(self.report.provenance),
        }


def diagnose(question: RunQuestion, trace: str | None = None) -> Diagnosis:
    """Explain a measured run and rank changes of its configuration.

    Args:
        question: the run.
        trace: a profiler's trace of one of its ranks, or None.

    Raises:
        InputError: no usable log, configuration, plan, figure or trace.
    """
    traced = None if trace is None else read_trace(trace)
    with garbage_collection_paused():
        return diagnosed(measured_run(question), traced)


def diagnosed(run: MeasuredRun, trace: TracedStep | None = None) -> Diagnosis:
    """The diagnosis of a run that was read.

    Raises:
        InputError: a step shorter than its FLOPs take at the devices' peak.
    """
    pricing = (run.stack, run.measured, run.assumptions, run.risk)
    simulated = simulate_plan(run.plan, *pricing)
    slow_s = 0.0 if run.noise is None else run.noise.slow_s
    bars = waterfall(simulated, run.measured_s, slow_s)
    search = ChangeSearch(
        run.plan, run.stack, run.measured, run.framework, run.measured_s, bars.mfu, run.risk
    )
    return Diagnosis(
        run=run,
        report=simulated.report,
        waterfall=bars,
        changes=search.ranked(),
        trace=trace,
        measure_next=_measure_next(run, simulated.report, bars, trace),
    )


def _measure_next(
    run: MeasuredRun, report: Report, bars: Waterfall, trace: TracedStep | None
) -> tuple[str, ...]:
    """Measurements that would explain a step that is noisy or not explained."""
    found: list[str] = []
    noise = run.noise
    if noise is not None and noise.p99_s > NOISY * noise.p50_s:
        found.append("slow steps: the data loader's wait, checkpoints, garbage collection, by step")
    if trace is not None:
        found += _by_trace(report, trace)
    if bars.explained >= LITTLE:
        return tuple(found)
    if trace is None:
        found.append("a trace of one rank over a few steps (torch.profiler), for --trace")
        found.append("the device's clocks and power while it trains (nvidia-smi -q -d CLOCK,POWER)")
    if run.noise is None:
        found.append("every step's seconds: give the run's log, which shows its noise")
    if (
        run.peak_bytes
        and run.peak_bytes > NEARLY_FULL * peak_memory_row(report.prediction).capacity_bytes
    ):
        found.append("retries of the allocator (torch.cuda.memory_stats: num_alloc_retries)")
    return tuple(found)


def _by_trace(report: Report, trace: TracedStep) -> list[str]:
    """Parts of a traced step that are longer than predicted."""
    predicted = predicted_parts(report.prediction)
    measured = {
        "computation": trace.computation_s,
        "communication": trace.communication_s,
        "idle": trace.idle_s,
    }
    words = {
        "computation": "kernels: the device's clocks, and plan profile on this device",
        "communication": "links: nccl-tests of the groups that the plan uses; other ranks' traces, "
        "for one may be late",
        "idle": "the host: the data loader's wait, synchronization, kernels launched one by one",
    }
    over = {part: measured[part] - predicted[part] for part in words}
    ordered = sorted(over, key=lambda part: -over[part])
    return [words[part] for part in ordered if over[part] > APART * trace.step_s]
