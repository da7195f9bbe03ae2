"""A published run priced, beside two naive baselines of its step.

Any cost model has to beat the baselines: the step at the devices' peak, divided by one MFU fitted
to the same rows; and 6·N·tokens at that peak, lengthened by the pipeline's bubble (p - 1) / (v·m),
which is not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...costmodel.memory.library_workspace import recalibrated_row, state_bytes, workspace_bytes
from ...datasets.catalogue.device import device
from ...datasets.published.runs import PublishedRun
from ...spec.cluster.calibration import (
    MEMORY_AS_SHIPPED,
    Calibration,
    CalibrationScope,
    MemoryConstants,
)
from ...spec.cluster.stack_spec import StackSpec
from ...spec.report.report import MemoryRow, Prediction, Report
from ...spec.units import GIB
from .published_run import PlannedRun, planned_run, simulation_arguments

GB = 10**9
DRIVER, RESERVED, PEAK = "driver", "reserved", "allocator_peak"
"""What a printed figure counts: ``nvidia-smi``, what the allocator reserves, or hands out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedRun:
    """A row with its prediction.

    ``measured_s`` is None where the source prints no seconds and no tokens a second; ``at_peak_s``
    is the step at an MFU of 1; ``static_bytes`` are parameters, gradients and optimizer states of
    the counted device; ``assumed`` are the fields that the source omits; ``stack`` priced it,
    ``device`` ran it, and ``memory`` holds its calibration's constants.
    """

    run: PublishedRun
    prediction: Prediction
    measured_s: float | None
    at_peak_s: float
    six_n_s: float
    assumed: tuple[str, ...]
    device: str
    stack: StackSpec
    memory: MemoryConstants = MEMORY_AS_SHIPPED

    @property
    def place(self) -> CalibrationScope:
        """The scope of its memory calibration."""
        return CalibrationScope(self.device, self.stack.name)

    @property
    def predicted_s(self) -> float:
        """Simulated seconds of a step."""
        return self.prediction.step_time_s

    @property
    def measured_bytes(self) -> float | None:
        """The printed peak of a device, or None.

        Decimal units where the source says so.
        """
        peak, kind = self.run.peak_mem_gib, self.run.metric_kind
        if peak is None or self.run.oom:  # a run that ended early never came to its peak
            return None
        return peak * (GB if "as printed" in kind else GIB)

    @property
    def predicted_bytes(self) -> float:
        """The peak by the source's count."""
        return self._bytes_of(self._counted)

    @property
    def static_bytes(self) -> float:
        """Parameters, gradients and optimizer states of that device, as textbooks count."""
        return state_bytes(self._counted)

    def bytes_under(self, constants: MemoryConstants) -> float:
        """Return the peak under memory constants."""
        rows = (
            recalibrated_row(row, self.stack, self.device, constants)
            for row in self.prediction.memory
        )
        prediction = replace(self.prediction, memory=tuple(rows))
        return replace(self, prediction=prediction, memory=constants).predicted_bytes

    @property
    def _counted(self) -> MemoryRow:
        """The row that the source counts: last rank, rank 0 or fullest."""
        rows, kind = self.prediction.memory, self.run.metric_kind.casefold()
        if "last rank" in kind:
            return rows[-1]
        if "rank 0" in kind:
            return rows[0]
        return max(rows, key=self._bytes_of)

    def _bytes_of(self, row: MemoryRow) -> float:
        workspaces = workspace_bytes(replace(self.stack, memory=self.memory), self.device)
        return counted_bytes(row, self.run.metric_kind, workspaces)


def counted_bytes(row: MemoryRow, kind: str, library_bytes: int = 0) -> float:
    """Bytes of a device by a printed kind of count.

    ``nvidia-smi`` sees all that is reserved, including the driver's context; ``torch peak`` of
    torchtitan is what the allocator reserves; everything else is what it hands out: tensors, and
    library workspaces, which PyTorch allocates there too.
    """
    count = count_of(kind)
    if count == DRIVER:
        return row.reserved_bytes
    if count == RESERVED:
        return row.reserved_bytes - row.by.get("context", 0)
    return row.allocated_bytes + library_bytes


def count_of(kind: str) -> str:
    """Map a printed ``metric_kind`` to one of the three counts."""
    kind = kind.casefold()
    if "nvidia-smi" in kind:
        return DRIVER
    return RESERVED if "torch peak" in kind or "reserved" in kind else PEAK


def price_run(
    run: PublishedRun, calibration: Calibration | None = None, requested: PlannedRun | None = None
) -> PricedRun:
    """Simulate a run, optionally with a calibration.

    ``requested`` is the row as a question, if already read.

    Raises:
        InputError: the row lacks a size, or has a value without meaning here.
        NotBuiltError: it has a value that this version does not serve.
    """
    requested = requested or planned_run(simulation_arguments(run))
    report = requested.simulate_run(calibration)
    prediction, cluster = report.prediction, report.plan.cluster
    rates = device(cluster.groups[0].device).peak_flops_per_s
    peak = rates.get("bf16", rates.get("fp16", rates["fp32"])) * cluster.device_count
    flops = prediction.flops_per_s_per_device * cluster.device_count * prediction.step_time_s
    return PricedRun(
        run=run,
        prediction=prediction,
        measured_s=measured_s(run, report.plan.workload.global_batch),
        at_peak_s=flops / peak,
        six_n_s=_six_n_s(report, peak),
        assumed=requested.unprinted,
        device=cluster.groups[0].device,
        stack=requested.problem.stack,
        memory=_memory_constants(calibration),
    )


def _memory_constants(calibration: Calibration | None) -> MemoryConstants:
    if calibration is None or calibration.memory is None:
        return MEMORY_AS_SHIPPED
    return calibration.memory.constants


def measured_s(run: PublishedRun, global_batch: int) -> float | None:
    """Return measured seconds of a step of ``global_batch``.

    Where only tokens a second are printed, they are converted.
    """
    if run.seconds is not None or run.tokens_per_s_per_gpu is None:
        return run.seconds
    return global_batch * (run.seq or 0) / (run.tokens_per_s_per_gpu * (run.gpus or 1))


def _six_n_s(report: Report, peak_flops_per_s: float) -> float:
    work, program = report.plan.workload, report.plan.program
    active = report.plan.model.active_param_count(work.seq_len)
    chunks = program.chunks_per_stage * program.schedule.microbatches
    bubble = (len(program.stages) - 1) / chunks
    return 6 * active * work.global_batch * work.seq_len / peak_flops_per_s * (1 + bubble)
