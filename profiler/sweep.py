"""Measure this machine.

Kernels, links, copies, host time, within a budget of seconds.

One list of stages for every kind of device; a stage that a device lacks is noted in the profile.
Results of a stage are saved at once, those of kernels in parts, so that an interrupted measurement
resumes (``store.partial_profile``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..costmodel.calibration.profile_residual import with_residual
from ..datasets.catalogue.device import CPU
from ..executor.launch.pool import WorkerPool
from ..spec.cluster.machine_profile import KernelRow, MachineProfile
from ..spec.plan.plan import Plan
from ..spec.report.work_items import Kernel
from .overhead.host_overhead import with_overheads
from .store.partial_profile import PartialProfile, load_partial, remove_partial, save_partial
from .store.profile_rows import Measurements, case_key, with_measurements
from .store.profiles import fingerprint, machine_facts
from .timing.storage_timing import NO_FOLDER, measure_storage

QUICK_BUDGET_S = 20.0
COARSE_BELOW_S = 40.0
HOST_SHARE = {True: 0.5, False: 0.3}
"""Part of the budget for links and whole steps; more where the grid is coarse."""
LINK_SHARE = 0.4
"""Part of the time after the kernels that links may take."""
COPY_SHARE = 0.2
"""Part of the time after the links that copies may take."""
PROBE_SHARE = 1 / 3
"""Part of the remaining time that one probe may take."""
END_S = 2.0
"""Seconds for the last probe and the pool's end."""
STEPS = 7
ROUNDS = 3
"""Most sweeps over everything on cores: a machine has slow minutes, so the least of several
counts. On other devices a median of one sweep does.
"""
JOBS = "shardwright.profiler.timing."
OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTarget:
    """The measured device and drive folder; ``fresh``: do not resume.

    ``checkpoint``: a folder for checkpoints. ``programs``: kernels to time in place of the grid of
    sizes.
    """

    device: str = CPU
    storage: Path | None = None
    checkpoint: str | None = None
    fresh: bool = False
    programs: tuple[Kernel, ...] = ()


def measure(
    budget_s: float, ranks: int, on_event: OnEvent | None = None, target: SweepTarget | None = None
) -> MachineProfile:
    """A profile of this machine with ``ranks`` ranks at work.

    Args:
        budget_s: seconds it may take, start-up included; below 40 the grid is coarse.
        ranks: number of ranks that work at once.
        on_event: called with progress events (dicts with a ``phase``).
        target: the device; this machine's cores by default.

    Raises:
        RunError: a rank failed; results of earlier stages are saved for the next call.
        InputError: the folder on a drive cannot be used.
    """
    sweep = _Sweep(budget_s, ranks, on_event or (lambda event: None), target or SweepTarget())
    return sweep.run()


class _Sweep:
    """One measurement in progress."""

    def __init__(self, budget_s: float, ranks: int, emit: OnEvent, target: SweepTarget) -> None:
        self.start_s = time.monotonic()
        self.budget_s, self.ranks, self.emit, self.target = budget_s, ranks, emit, target
        self.coarse = budget_s < COARSE_BELOW_S
        folders = (target.storage, target.checkpoint)
        self.storage = " ".join(str(folder) for folder in folders if folder is not None)
        empty = _empty(ranks, target.device)
        partial = None if target.fresh else load_partial(empty, self.coarse, self.storage)
        self.profile = empty if partial is None else partial.profile
        self.finished = () if partial is None else partial.finished
        self.timed_kernels: tuple[KernelRow, ...] = ()  # of the interrupted kernel stage
        if partial is not None and "kernels" not in partial.finished:
            self.timed_kernels = partial.profile.kernels
        self.earlier_s = 0.0 if partial is None else partial.profile.duration_s
        self.is_first = True  # round; later rounds save no parts
        self.step_s: dict[str, float] = {}

    @property
    def on_cores(self) -> bool:
        return self.target.device == CPU

    def left_s(self) -> float:
        return max(0.0, self.start_s + self.budget_s - END_S - time.monotonic())

    def run(self) -> MachineProfile:
        start: dict[str, Any] = {"phase": "start", "ranks": self.ranks}
        if self.finished or self.timed_kernels:
            partly = ("kernels in part",) if self.timed_kernels else ()
            start["resumed"] = [*self.finished, *partly]
        self.emit(start)
        with WorkerPool(self.ranks, self.target.device) as pool:
            self._job(pool, "kernel_timing:warm_up", {})
            for number in range(ROUNDS if self.on_cores else 1):
                left_before_s = self.left_s()
                self._stages(pool)
                if self.target.programs:
                    self.profile = with_residual(self.profile)
                self.emit({"phase": "host"})
                has_probes = number > 0  # times of every probe, from the first round
                self._fit(
                    pool, is_over=(lambda: False) if has_probes else (lambda: not self.left_s())
                )
                self.finished = self.timed_kernels = ()
                self.is_first = False
                if self.left_s() < left_before_s - self.left_s():  # too little for another round
                    break
        remove_partial(self.profile)
        return replace(self.profile, duration_s=self._duration_s())

    def _duration_s(self) -> float:
        return max(self.earlier_s + time.monotonic() - self.start_s, 1e-3)

    def _stages(self, pool: WorkerPool) -> None:
        """Everything but whole steps.

        Each stage's rows are saved as soon as it ends.
        """
        dtypes = ["fp32"] if self.coarse else ["fp32", "bf16"]
        share = 1 - HOST_SHARE[self.coarse]
        self._stage("kernels", lambda: self._kernels(pool, dtypes, share))
        if self.ranks > 1:
            self._stage("links", lambda: self._links(pool))
        self._stage("copies", lambda: self._copies(pool))
        self._stage("sharing", lambda: self._sharing(pool))
        self._stage("storage", self._storage)
        if self.target.checkpoint is not None:
            self._stage("checkpoints", lambda: self._checkpoints(pool))

    def _stage(self, name: str, measure_stage: Callable[[], Measurements]) -> None:
        if name in self.finished:
            return
        self.profile = with_measurements(self.profile, measure_stage())
        self.finished = (*self.finished, name)
        self._save()

    def _save(self) -> None:
        self.profile = replace(self.profile, duration_s=self._duration_s())
        partial = PartialProfile(
            profile=self.profile,
            finished=self.finished,
            coarse=self.coarse,
            storage=self.storage,
        )
        save_partial(partial)

    def _kernels(self, pool: WorkerPool, dtypes: list[str], share: float) -> Measurements:
        ordered = dtypes if self.on_cores else ["bf16", *(d for d in dtypes if d != "bf16")]
        payload = {
            "coarse": self.coarse,
            "dtypes": ["bf16"] if self.coarse and not self.on_cores else ordered,
            "budget_s": self.left_s() * share,
            "known": [case_key(row) for row in self.timed_kernels],
            "programs": [list(kernel) for kernel in self.target.programs],
        }
        result = self._job(pool, "kernel_timing:measure_kernels", payload)
        return Measurements(kernels=result["rows"], skipped=result["skipped"])

    def _links(self, pool: WorkerPool) -> Measurements:
        limits = {"coarse": self.coarse, "budget_s": self.left_s() * LINK_SHARE}
        return Measurements(collectives=self._job(pool, "link_timing:measure_links", limits))

    def _copies(self, pool: WorkerPool) -> Measurements:
        limits = {"coarse": self.coarse, "budget_s": self.left_s() * COPY_SHARE}
        result = self._job(pool, "copy_timing:measure_copies", limits)
        return Measurements(copies=result["rows"], skipped=result["skipped"])

    def _sharing(self, pool: WorkerPool) -> Measurements:
        result = self._job(pool, "overlap_timing:measure_sharing", {})
        return Measurements(
            skipped=result["skipped"],
            launch_s=result.get("launch_s"),
            overlap_slowdown=result.get("overlap_slowdown"),
        )

    def _storage(self) -> Measurements:
        folder = self.target.storage
        if folder is None:
            return Measurements(
                skipped=[{"op": op, "why": NO_FOLDER} for op in ("nvme_read", "nvme_write")]
            )
        self.emit({"phase": "storage"})
        return Measurements(copies=measure_storage(folder))

    def _checkpoints(self, pool: WorkerPool) -> Measurements:
        payload = {"folder": self.target.checkpoint}
        return Measurements(copies=self._job(pool, "checkpoint_timing:measure_checkpoint", payload))

    def _fit(self, pool: WorkerPool, is_over: Callable[[], bool]) -> None:
        def step_s(plan: Plan) -> float:
            if plan.hash in self.step_s and not self.left_s():
                return self.step_s[plan.hash]
            seconds = self._timed_step_s(pool, plan, self.left_s() * PROBE_SHARE)
            self.step_s[plan.hash] = min(seconds, self.step_s.get(plan.hash, seconds))
            return self.step_s[plan.hash]

        self.profile = with_overheads(self.profile, step_s, self.coarse, is_over)

    def _timed_step_s(self, pool: WorkerPool, plan: Plan, budget_s: float) -> float:
        """The least of several steps on cores, where noise only adds.

        Else the median.
        """
        payload = {"plan": plan.to_document(), "steps": STEPS, "budget_s": budget_s}
        times: list[float] = self._job(pool, "step_timing:step_seconds", payload)
        return min(times) if self.on_cores else statistics.median(times)

    def _job(self, pool: WorkerPool, job: str, payload: dict[str, Any]) -> Any:
        """Rank 0's result.

        Its events are passed on, and kernels reported in them are saved.
        """

        def relay(rank: int, event: dict[str, Any]) -> None:
            if rank == 0:
                result = event.get("found")
                if result is not None and self.is_first:
                    rows = Measurements(kernels=result["rows"], skipped=result["skipped"])
                    self.profile = with_measurements(self.profile, rows)
                    self._save()
                self.emit({key: value for key, value in event.items() if key != "found"})

        return pool.run(JOBS + job, payload, None, relay)[0]


def _empty(ranks: int, device: str) -> MachineProfile:
    return MachineProfile(
        device=device,
        fingerprint=fingerprint(device),
        machine=machine_facts(device),
        ranks=ranks,
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        duration_s=1e-3,
        kernels=(),
    )
