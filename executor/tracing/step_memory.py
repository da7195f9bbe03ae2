"""Memory of one step: peak of every stage's fullest rank, and curve.

Following every allocation slows a step, so memory has a step of its own. Its passes match the
traced step's, so their start times tie the two: the curve is stretched evenly between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch

from ..engine.engine import Engine
from ..host.tier import on_host
from ..host.transfers import release
from ..launch.consistency import gather_json
from ..launch.progress import PROGRESS
from .memory_snapshot import Snapshot, allocated_curve, cpu_snapshot, cuda_snapshot, recording_cuda
from .recorder import LiveBytes

MAX_POINTS = 2000
"""Points of a curve that a trace shows a rank."""


class StepMemory(NamedTuple):
    """One rank's memory in one step.

    ``reserved_bytes``: the allocator's peak on a device, None on cores; ``host_bytes``: techniques'
    host memory; ``snapshot`` and ``marks_ns`` (start, passes, end of the step): if requested.
    """

    peak_bytes: int
    reserved_bytes: int | None
    snapshot: Snapshot | None
    marks_ns: list[int]
    host_bytes: int = 0

    def curve_on(self, marks_ns: Sequence[int]) -> list[tuple[int, int]]:
        """Allocated bytes at times of another identical step, thinned.

        ``marks_ns``: that step's start, passes and end.
        """
        if self.snapshot is None:
            return []
        # Differences to one moment are exact in float64; nanoseconds since 1970 are not.
        start_ns = self.marks_ns[0]
        every = allocated_curve(self.snapshot)
        before = sum(seconds * 1e9 <= start_ns for seconds, _ in every)
        points = thinned(every[max(0, before - 1) :])  # what lived before the step is one level
        times = [seconds * 1e9 - start_ns for seconds, _ in points]
        here = [mark - start_ns for mark in self.marks_ns]
        there = [mark - marks_ns[0] for mark in marks_ns]
        moved = np.interp(times, here, there)
        pairs = zip(moved, points, strict=True)
        return [(marks_ns[0] + round(time), size) for time, (_, size) in pairs]


def thinned(points: Sequence[tuple[float, int]], most: int = MAX_POINTS) -> list[tuple[float, int]]:
    """At most ``most`` points: each stretch's highest, and the last."""
    if len(points) <= most:
        return list(points)
    size = -(-len(points) // (most - 1))
    parts = [points[first : first + size] for first in range(0, len(points), size)]
    return [*(max(part, key=lambda point: point[1]) for part in parts), points[-1]]


def follow_step(engine: Engine, snapshot: bool) -> StepMemory:
    """Run one more step and follow this rank's memory in it.

    ``snapshot`` keeps every allocation, not only the peak.
    """
    device = engine.options.device
    release(device)  # what plans of earlier jobs left in an allocator is not of this step
    if device.type == "cpu":
        return _follow_cores(engine, snapshot)
    torch.cuda.reset_peak_memory_stats(device)
    with PROGRESS.timed() as marks_ns, _recorded(device, snapshot) as taken:
        engine.step()
    peak = torch.cuda.max_memory_allocated(device)
    reserved = torch.cuda.max_memory_reserved(device)
    return StepMemory(peak, reserved, taken[0] if taken else None, marks_ns, _hosted(engine))


def _hosted(engine: Engine) -> int:
    return sum(t.untyped_storage().nbytes() for t in engine.resident_tensors() if on_host(t))


def _follow_cores(engine: Engine, snapshot: bool) -> StepMemory:
    live = LiveBytes(engine.resident_tensors())
    with live, live.following_resizes(), PROGRESS.timed() as marks_ns:
        engine.step()
    taken = cpu_snapshot(live.history) if snapshot else None
    return StepMemory(live.peak_bytes, None, taken, marks_ns, live.host_peak_bytes)


@contextmanager
def _recorded(device: torch.device, wanted: bool) -> Iterator[list[Snapshot]]:
    """Record allocations if ``wanted``; the snapshot is complete on exit."""
    taken: list[Snapshot] = []
    if not wanted:
        yield taken
        return
    with recording_cuda(device):
        yield taken
        taken.append(cuda_snapshot(device))


def by_stage(engine: Engine, memory: StepMemory) -> dict[str, list[int]]:
    """Peaks of the fullest rank of each stage. Collective.

    Returns:
        ``allocated_bytes``; with a caching allocator, ``reserved_bytes``; with host memory on any
        rank, ``host_bytes``.
    """
    local_peaks = [memory.peak_bytes, memory.reserved_bytes or 0, memory.host_bytes]
    peaks = gather_json(local_peaks, engine.options.device)
    stages = [peaks[first : first + count] for first, count in engine.process_groups.layout]
    document = {"allocated_bytes": [max(peak for peak, _, _ in stage) for stage in stages]}
    if memory.reserved_bytes is not None:
        document["reserved_bytes"] = [max(reserved for _, reserved, _ in stage) for stage in stages]
    hosted = [max(host for _, _, host in stage) for stage in stages]
    if any(hosted):
        document["host_bytes"] = hosted
    return document
