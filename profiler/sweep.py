"""Measuring this machine: kernels, links, copies, host time, within a budget of seconds.

One list of stages for every kind of device; a stage that a device does not have says so in the
profile. What a stage finds is kept at once, the kernels' in parts, so a measurement that was cut
short goes on where it was (:mod:`partial_profile`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..datasets.catalogue.device import CPU
from ..executor.launch.pool import WorkerPool
from ..spec.cluster.machine_profile import KernelRow, MachineProfile
from ..spec.plan.plan import Plan
from .overhead.host_overhead import with_overheads
from .store.partial_profile import PartialProfile, load_partial, remove_partial, save_partial
from .store.profile_rows import Measurements, case_key, with_measurements
from .store.profiles import fingerprint, machine_facts
from .timing.storage_timing import NO_FOLDER, measure_storage

QUICK_BUDGET_S = 20.0
COARSE_BELOW_S = 40.0
HOST_SHARE = {True: 0.5, False: 0.3}
"""Part of the budget that is kept for links and whole steps; more where the grid is coarse."""
LINK_SHARE = 0.4
"""Part of what the kernels leave that links may take."""
COPY_SHARE = 0.2
"""Part of what the links leave that copies may take."""
PROBE_SHARE = 1 / 3
"""Part of what is left that one probe may take."""
END_S = 2.0
"""Seconds that the last probe and the pool's end may take."""
STEPS = 7
ROUNDS = 3
"""Most sweeps over everything on cores: a machine has slow minutes, and the least of several
stands. Elsewhere a median stands, and one sweep does."""
JOBS = "shardwright.profiler.timing."
OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTarget:
    """What is measured: the device of a rank, a folder on a drive, and whether from the start."""

    device: str = CPU
    storage: Path | None = None
    fresh: bool = False


def measure(
    budget_s: float, ranks: int, on_event: OnEvent | None = None, target: SweepTarget | None = None
) -> MachineProfile:
    """A profile of this machine with ``ranks`` ranks at work.

    Args:
        budget_s: seconds it may take, start-up included; below 40 the grid is coarse.
        ranks: how many ranks work at once.
        on_event: called with progress events (dicts with a ``phase``).
        target: on which device; this machine's cores unless given.

    Raises:
        RunError: a rank failed; what earlier stages found is kept for the next call.
        InputError: the folder on a drive cannot be used.
    """
    sweep = _Sweep(budget_s, ranks, on_event or (lambda event: None), target or SweepTarget())
    return sweep.run()


class _Sweep:
    """One measurement on its way."""

    def __init__(self, budget_s: float, ranks: int, emit: OnEvent, target: SweepTarget) -> None:
        self.start_s = time.monotonic()
        self.budget_s, self.ranks, self.emit, self.target = budget_s, ranks, emit, target
        self.coarse = budget_s < COARSE_BELOW_S
        self.storage = "" if target.storage is None else str(target.storage)
        empty = _empty(ranks, target.device)
        kept = None if target.fresh else load_partial(empty, self.coarse, self.storage)
        self.profile = empty if kept is None else kept.profile
        self.finished = () if kept is None else kept.finished
        self.known: tuple[KernelRow, ...] = ()  # of the stage of kernels that was cut short
        if kept is not None and "kernels" not in kept.finished:
            self.known = kept.profile.kernels
        self.before_s = 0.0 if kept is None else kept.profile.duration_s
        self.is_first = True  # of the rounds: a whole one that was kept is worth more than a part
        self.step_s: dict[str, float] = {}

    @property
    def on_cores(self) -> bool:
        return self.target.device == CPU

    def left_s(self) -> float:
        return max(0.0, self.start_s + self.budget_s - END_S - time.monotonic())

    def run(self) -> MachineProfile:
        start: dict[str, Any] = {"phase": "start", "ranks": self.ranks}
        if self.finished or self.known:
            partly = ("kernels in part",) if self.known else ()
            start["resumed"] = [*self.finished, *partly]
        self.emit(start)
        with WorkerPool(self.ranks, self.target.device) as pool:
            self._job(pool, "kernel_timing:warm_up", {})
            for number in range(ROUNDS if self.on_cores else 1):
                began_s = self.left_s()
                self._stages(pool)
                self.emit({"phase": "host"})
                known = number > 0  # what every probe takes, at least from the first round
                self._fit(pool, is_over=(lambda: False) if known else (lambda: not self.left_s()))
                self.finished = self.known = ()
                self.is_first = False
                if self.left_s() < began_s - self.left_s():  # as long as that round took
                    break
        remove_partial(self.profile)
        return replace(self.profile, duration_s=self._duration_s())

    def _duration_s(self) -> float:
        """Of all starts together."""
        return max(self.before_s + time.monotonic() - self.start_s, 1e-3)

    def _stages(self, pool: WorkerPool) -> None:
        """Everything but whole steps, each stage's rows kept as soon as it is over."""
        dtypes = ["fp32"] if self.coarse else ["fp32", "bf16"]
        share = 1 - HOST_SHARE[self.coarse]
        self._stage("kernels", lambda: self._kernels(pool, dtypes, share))
        if self.ranks > 1:
            self._stage("links", lambda: self._links(pool))
        self._stage("copies", lambda: self._copies(pool))
        self._stage("sharing", lambda: self._sharing(pool))
        self._stage("storage", self._storage)

    def _stage(self, name: str, measured: Callable[[], Measurements]) -> None:
        if name in self.finished:
            return
        self.profile = with_measurements(self.profile, measured())
        self.finished = (*self.finished, name)
        self._keep()

    def _keep(self) -> None:
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
            "known": [case_key(row) for row in self.known],
        }
        found = self._job(pool, "kernel_timing:measure_kernels", payload)
        return Measurements(kernels=found["rows"], skipped=found["skipped"])

    def _links(self, pool: WorkerPool) -> Measurements:
        limits = {"coarse": self.coarse, "budget_s": self.left_s() * LINK_SHARE}
        return Measurements(collectives=self._job(pool, "link_timing:measure_links", limits))

    def _copies(self, pool: WorkerPool) -> Measurements:
        limits = {"coarse": self.coarse, "budget_s": self.left_s() * COPY_SHARE}
        found = self._job(pool, "copy_timing:measure_copies", limits)
        return Measurements(copies=found["rows"], skipped=found["skipped"])

    def _sharing(self, pool: WorkerPool) -> Measurements:
        found = self._job(pool, "overlap_timing:measure_sharing", {})
        return Measurements(
            skipped=found["skipped"],
            launch_s=found.get("launch_s"),
            overlap_slowdown=found.get("overlap_slowdown"),
        )

    def _storage(self) -> Measurements:
        folder = self.target.storage
        if folder is None:
            return Measurements(
                skipped=[{"op": op, "why": NO_FOLDER} for op in ("nvme_read", "nvme_write")]
            )
        self.emit({"phase": "storage"})
        return Measurements(copies=measure_storage(folder))

    def _fit(self, pool: WorkerPool, is_over: Callable[[], bool]) -> None:
        """The constants of whole steps."""

        def step_s(plan: Plan) -> float:
            if plan.hash in self.step_s and not self.left_s():
                return self.step_s[plan.hash]
            seconds = self._timed_step_s(pool, plan, self.left_s() * PROBE_SHARE)
            self.step_s[plan.hash] = min(seconds, self.step_s.get(plan.hash, seconds))
            return self.step_s[plan.hash]

        self.profile = with_overheads(self.profile, step_s, self.coarse, is_over)

    def _timed_step_s(self, pool: WorkerPool, plan: Plan, budget_s: float) -> float:
        """Of several steps the least on cores, where others only add; else the median."""
        payload = {"plan": plan.to_document(), "steps": STEPS, "budget_s": budget_s}
        times: list[float] = self._job(pool, "step_timing:step_seconds", payload)
        return min(times) if self.on_cores else statistics.median(times)

    def _job(self, pool: WorkerPool, job: str, payload: dict[str, Any]) -> Any:
        """Rank 0's result; what it reports is passed on, and kernels that it found are kept."""

        def relay(rank: int, event: dict[str, Any]) -> None:
            if rank == 0:
                found = event.get("found")
                if found is not None and self.is_first:
                    rows = Measurements(kernels=found["rows"], skipped=found["skipped"])
                    self.profile = with_measurements(self.profile, rows)
                    self._keep()
                self.emit({key: value for key, value in event.items() if key != "found"})

        return pool.run(JOBS + job, payload, None, relay)[0]


def _empty(ranks: int, device: str) -> MachineProfile:
    """A profile of now without rows."""
    return MachineProfile(
        device=device,
        fingerprint=fingerprint(device),
        machine=machine_facts(device),
        ranks=ranks,
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        duration_s=1e-3,
        kernels=(),
    )
