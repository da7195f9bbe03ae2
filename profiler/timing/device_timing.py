"""Seconds of device work, without the host time of launches.

On a CUDA device: events around every run, a median over many, and the work rotates over copies of
its operands, so that none is found in the last-level cache. Runs are queued in batches, each
behind a pause that lasts longer than the host takes to queue the batch: a fused call costs the
host up to a tenth of a millisecond (dispatch, autograd, Triton's launch), and a device that
caught up with it would wait between two events, which would then measure the host. The host time
of a run comes from the warm-up. On a core the clock around every run measures the same.
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
"""Times that all copies together fill the last-level cache."""
MAX_COPIES = 64
QUEUED_RUNS = 20
"""Most runs behind one pause: the device's queue holds about a thousand launches."""
LONGER_PAUSE = 1.5
"""Length of a batch's pause over the host time of the warm-up."""
EVENTS_S = 1e-5
"""Host time of the two events around a run, at most."""
LONG_PAUSE_S = 0.02
"""Longer pauses shorten the batch; a single run's pause is as long as needed."""
CYCLES_PER_S = 2.1e9
"""Least rate of a pause's cycles; more on a device that reports a faster clock."""


class Timing(NamedTuple):
    """Median seconds, interquartile range / median, and number of runs."""

    median_s: float
    spread: float
    runs: int


def copies_to_miss_cache(touched_bytes: int, device: torch.device) -> int:
    """Copies of ``touched_bytes`` that, used in turn, miss the cache."""
    if device.type != "cuda":
        return 1
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    return max(1, min(MAX_COPIES, math.ceil(CACHE_TIMES * cache / max(touched_bytes, 1))))


def time_on(device: torch.device, rotation: Sequence[DeviceRun], budget_s: float = 0.1) -> Timing:
    """Time work on several copies of its operands in turn.

    Args:
        device: of the work.
        rotation: one function a copy, see :func:`copies_to_miss_cache`.
        budget_s: approximate time to repeat it; at least 10 and at most 200 runs.
    """
    if device.type == "cuda":
        with torch.cuda.device(device):  # events and pauses use the current device
            host_s = _host_s(device, rotation)
            return _timed(partial(_events, device, rotation, host_s), host_s, budget_s)
    host_s = _host_s(device, rotation)
    return _timed(partial(_clocked, rotation), host_s, budget_s)


def _timed(measured: Callable[[int], list[float]], host_s: float, budget_s: float) -> Timing:
    first_s = statistics.median(measured(WARM_UP_RUNS))
    runs = max(MIN_RUNS, min(MAX_RUNS, round(budget_s / max(first_s, host_s, 1e-9))))
    seconds = sorted(measured(runs))
    low, middle, high = statistics.quantiles(seconds, n=4)
    return Timing(middle, (high - low) / middle if middle else 0.0, runs)


def _host_s(device: torch.device, rotation: Sequence[DeviceRun]) -> float:
    seconds = _clocked(rotation, WARM_UP_RUNS)
    finish(device)
    return statistics.median(seconds)


def _clocked(rotation: Sequence[DeviceRun], runs: int) -> list[float]:
    times = []
    for number in range(runs):
        start_s = time.perf_counter()
        rotation[number % len(rotation)]()
        times.append(time.perf_counter() - start_s)
    return times


def _events(
    device: torch.device, rotation: Sequence[DeviceRun], host_s: float, runs: int
) -> list[float]:
    """Seconds of each run, queued in ``host_s`` seconds of the host."""
    pause_s = LONGER_PAUSE * (host_s + EVENTS_S)
    batch_size = max(1, min(QUEUED_RUNS, int(LONG_PAUSE_S / pause_s)))
    cycles_per_s = _cycles_per_s(device)
    times: list[float] = []
    for first in range(0, runs, batch_size):
        batch = range(first, min(first + batch_size, runs))
        marks = [_event() for _ in range(2 * len(batch))]
        cycles = math.ceil(pause_s * len(batch) * cycles_per_s)
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        for index, number in enumerate(batch):
            marks[2 * index].record()
            rotation[number % len(rotation)]()
            marks[2 * index + 1].record()
        finish(device)
        pairs = zip(marks[::2], marks[1::2], strict=True)
        times += [start.elapsed_time(end) / 1e3 for start, end in pairs]
    return times


def _cycles_per_s(device: torch.device) -> float:
    reported_khz = getattr(torch.cuda.get_device_properties(device), "clock_rate", 0)
    return max(CYCLES_PER_S, 1e3 * reported_khz)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
