"""A published run priced: what ``plan simulate`` says, and two naive baselines of its step time.

The baselines, which any model of costs has to beat: the step at the peak of the devices, to be
divided by one MFU fitted to what it is held against; and 6·N·tokens at that peak, lengthened by
the pipeline's bubble (p - 1) / (v·m), which nothing is fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..datasets.catalogue.device import device
from ..datasets.catalogue.stack import stack
from ..datasets.published.runs import PublishedRun
from ..spec.calibration import Calibration
from ..spec.report import MemoryRow, Prediction, Report
from ..spec.units import GIB
from .published_run import Asked, asked_plan, question_of

GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedRun:
    """One row and what is predicted of it.

    ``measured_s`` is None where the source prints no seconds and no tokens a second;
    ``at_peak_s`` is the step at an MFU of 1; ``static_bytes`` are parameters, gradients and
    optimizer states of the device that is counted; ``assumed`` are the fields that the source
    leaves out; ``library_bytes`` is what the stack's libraries take from the allocator.
    """

    run: PublishedRun
    prediction: Prediction
    measured_s: float | None
    at_peak_s: float
    six_n_s: float
    assumed: tuple[str, ...]
    library_bytes: int = 0

    @property
    def predicted_s(self) -> float:
        """Simulated seconds of a step."""
        return self.prediction.step_time_s

    @property
    def measured_bytes(self) -> float | None:
        """The printed peak of a device, decimal where it says so; None where there is none."""
        peak, kind = self.run.peak_mem_gib, self.run.metric_kind
        if peak is None or self.run.oom:  # a run that ended early never came to its peak
            return None
        return peak * (GB if "as printed" in kind else GIB)

    @property
    def predicted_bytes(self) -> float:
        """The peak by the count that the source prints."""
        return counted_bytes(self._counted, self.run.metric_kind, self.library_bytes)

    @property
    def static_bytes(self) -> float:
        """Parameters, gradients and optimizer states of that device: what textbooks count."""
        by = self._counted.by
        return sum(by.get(name, 0) for name in ("parameters", "gradients", "optimizer"))

    @property
    def _counted(self) -> MemoryRow:
        """The device that the source counts: of the last rank, of rank 0, or the fullest."""
        rows, kind = self.prediction.memory, self.run.metric_kind
        if "last rank" in kind.casefold():
            return rows[-1]
        if "rank 0" in kind.casefold():
            return rows[0]
        return max(rows, key=lambda row: counted_bytes(row, kind, self.library_bytes))


def counted_bytes(row: MemoryRow, kind: str, library_bytes: int = 0) -> float:
    """Bytes of a device by a printed kind of count.

    ``nvidia-smi`` sees all that is reserved, the driver's context too; ``torch peak`` of torchtitan
    is what the allocator reserves; everything else is what it hands out: tensors, and workspaces
    of libraries, which PyTorch takes from it too.
    """
    kind = kind.casefold()
    if "nvidia-smi" in kind:
        return row.reserved_bytes
    if "torch peak" in kind or "reserved" in kind:
        return row.reserved_bytes - row.by.get("context", 0)
    return row.allocated_bytes + library_bytes


def priced(
    run: PublishedRun, calibration: Calibration | None = None, asked: Asked | None = None
) -> PricedRun:
    """What ``plan simulate`` says of a run, with a calibration or with none.

    Args:
        run: the row.
        calibration: factors on shipped seconds.
        asked: the row as a question, where it has been read before.

    Raises:
        InputError: the row lacks a size, or has a value that has no meaning here.
        NotBuiltError: it has a value that this version does not serve.
    """
    asked = asked or asked_plan(question_of(run))
    report = asked.answer(calibration)
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
        assumed=asked.left_out,
        library_bytes=stack(report.provenance.stack.split()[0]).allocator.workspace_bytes,
    )


def measured_s(run: PublishedRun, global_batch: int) -> float | None:
    """Seconds of a step, of the batch that is asked for where only tokens a second are printed."""
    if run.seconds is not None or run.tokens_per_s_per_gpu is None:
        return run.seconds
    return global_batch * (run.seq or 0) / (run.tokens_per_s_per_gpu * (run.gpus or 1))


def _six_n_s(report: Report, peak_flops_per_s: float) -> float:
    work, program = report.plan.workload, report.plan.program
    active = report.plan.model.active_param_count(work.seq_len)
    chunks = program.chunks_per_stage * program.schedule.microbatches
    bubble = (len(program.stages) - 1) / chunks
    return 6 * active * work.global_batch * work.seq_len / peak_flops_per_s * (1 + bubble)
