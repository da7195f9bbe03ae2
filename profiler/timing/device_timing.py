"""Seconds of one piece of device work, apart from the host that launches it.

On a CUDA device: events around every run, a median over many, and the work rotates over copies of
its operands, so that none is found in the last-level cache. Runs are queued in batches, each
behind a pause that lasts longer than the host takes to queue the batch: a fused call costs the
host up to a tenth of a millisecond (dispatch, autograd, Triton's launch), and a device that
caught up with it would wait between two events, which would then tell of the host. What a run
costs the host is found in the warm-up. On a core the clock around every run says the same.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from ...executor.host.transfers import finish

DeviceRun = Callable[[], object]
WARM_UP_RUNS = 3
MIN_RUNS, MAX_RUNS = 10, 200
CACHE_TIMES = 3
"""How many times the last-level cache all copies together fill."""
MAX_COPIES = 64
QUEUED_RUNS = 20
"""Most runs behind one pause: the device's queue holds about a thousand launches."""
LONGER_PAUSE = 1.5
"""How much longer than the warm-up says the pause is that a batch is queued behind."""
EVENTS_S = 1e-5
"""What the two events around a run cost the host, at most."""
LONG_PAUSE_S = 0.02
"""A batch has fewer runs where its pause would be longer; one run's pause is as long as need be."""
CYCLES_PER_S = 2.1e9
"""No slower does a device count the cycles of a pause; more where it tells of a faster clock."""


class Timing(NamedTuple):
    """Median seconds of a run, (third - first quartile) / median, and the number of runs."""

    median_s: float
    spread: float
    runs: int


def copies_to_miss_cache(touched_bytes: int, device: torch.device) -> int:
    """How many copies of operands of so many bytes, used in turn, never lie in the cache."""
    if device.type != "cuda":
        return 1
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    return max(1, min(MAX_COPIES, math.ceil(CACHE_TIMES * cache / max(touched_bytes, 1))))


def time_on(device: torch.device, rotation: Sequence[DeviceRun], budget_s: float = 0.1) -> Timing:
    """Time the same work on several copies of its operands, each used in turn.

    Args:
        device: where the work runs.
        rotation: one function a copy, see :func:`copies_to_miss_cache`.
        budget_s: about how long to repeat it; at least 10 and at most 200 runs.
    """
    if device.type == "cuda":
        with torch.cuda.device(device):  # events and pauses are of the device that is current
            host_s = _host_s(device, rotation)
            return _timed(partial(_events, device, rotation, host_s), host_s, budget_s)
    host_s = _host_s(device, rotation)
    return _timed(partial(_clocked, rotation), host_s, budget_s)


def _timed(measured: Callable[[int], list[float]], host_s: float, budget_s: float) -> Timing:
    """A few runs say how many there is time for, where a run takes the host at least so long."""
    first_s = statistics.median(measured(WARM_UP_RUNS))
    runs = max(MIN_RUNS, min(MAX_RUNS, round(budget_s / max(first_s, host_s, 1e-9))))
    seconds = sorted(measured(runs))
    low, middle, high = statistics.quantiles(seconds, n=4)
    return Timing(middle, (high - low) / middle if middle else 0.0, runs)


def _host_s(device: torch.device, rotation: Sequence[DeviceRun]) -> float:
    """Warm up; the median of what a run takes the host, who waits for none."""
    seconds = _clocked(rotation, WARM_UP_RUNS)
    finish(device)
    return statistics.median(seconds)


def _clocked(rotation: Sequence[DeviceRun], runs: int) -> list[float]:
    found = []
    for number in range(runs):
        start_s = time.perf_counter()
        rotation[number % len(rotation)]()
        found.append(time.perf_counter() - start_s)
    return found


def _events(
    device: torch.device, rotation: Sequence[DeviceRun], host_s: float, runs: int
) -> list[float]:
    """Seconds of each run, queued in ``host_s`` seconds of the host."""
    pause_s = LONGER_PAUSE * (host_s + EVENTS_S)
    most = max(1, min(QUEUED_RUNS, int(LONG_PAUSE_S / pause_s)))
    cycles_per_s = _cycles_per_s(device)
    found: list[float] = []
    for first in range(0, runs, most):
        batch = range(first, min(first + most, runs))
        marks = [_event() for _ in range(2 * len(batch))]
        cycles = math.ceil(pause_s * len(batch) * cycles_per_s)
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        for place, number in enumerate(batch):
            marks[2 * place].record()
            rotation[number % len(rotation)]()
            marks[2 * place + 1].record()
        finish(device)
        pairs = zip(marks[::2], marks[1::2], strict=True)
        found += [start.elapsed_time(end) / 1e3 for start, end in pairs]
    return found


def _cycles_per_s(device: torch.device) -> float:
    """At least as many as the device counts; what it tells of its clock is in kHz, if anything."""
    told = getattr(torch.cuda.get_device_properties(device), "clock_rate", 0)
    return max(CYCLES_PER_S, 1e3 * told)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
