"""Seconds of one piece of device work, apart from the host that launches it.

On a CUDA device: events around every run, a median over many, and the work rotates over copies of
its operands, so that none is found in the last-level cache. A pause is queued before the first
run, during which the host queues the others; so gaps of a slow host are not counted. On a core
the clock around every run says the same.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

Run = Callable[[], object]
WARM_UP_RUNS = 3
LEAST_RUNS, MOST_RUNS = 10, 200
CACHE_TIMES = 3
"""How many times the last-level cache all copies together fill."""
MOST_COPIES = 64
QUEUED_RUNS = 50
"""Runs behind one pause: the device's queue holds about a thousand launches."""
PAUSE_CYCLES = 2_000_000
"""About a millisecond: longer than the host takes to queue the runs of a batch."""


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
    return max(1, min(MOST_COPIES, math.ceil(CACHE_TIMES * cache / max(touched_bytes, 1))))


def time_on(device: torch.device, rotation: Sequence[Run], budget_s: float = 0.1) -> Timing:
    """Time the same work on several copies of its operands, each used in turn.

    Args:
        device: where the work runs.
        rotation: one function a copy, see :func:`copies_to_miss_cache`.
        budget_s: about how long to repeat it; at least 10 and at most 200 runs.
    """
    for number in range(WARM_UP_RUNS):
        rotation[number % len(rotation)]()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    timed = _events if device.type == "cuda" else _clocked
    first_s = statistics.median(timed(device, rotation, WARM_UP_RUNS))
    runs = max(LEAST_RUNS, min(MOST_RUNS, round(budget_s / max(first_s, 1e-9))))
    seconds = sorted(timed(device, rotation, runs))
    low, middle, high = statistics.quantiles(seconds, n=4)
    return Timing(middle, (high - low) / middle if middle else 0.0, runs)


def _clocked(device: torch.device, rotation: Sequence[Run], runs: int) -> list[float]:
    found = []
    for number in range(runs):
        start_s = time.perf_counter()
        rotation[number % len(rotation)]()
        found.append(time.perf_counter() - start_s)
    return found


def _events(device: torch.device, rotation: Sequence[Run], runs: int) -> list[float]:
    found: list[float] = []
    for first in range(0, runs, QUEUED_RUNS):
        batch = range(first, min(first + QUEUED_RUNS, runs))
        marks = [_event() for _ in range(2 * len(batch))]
        torch.cuda._sleep(PAUSE_CYCLES)  # type: ignore[no-untyped-call]
        for place, number in enumerate(batch):
            marks[2 * place].record()
            rotation[number % len(rotation)]()
            marks[2 * place + 1].record()
        torch.cuda.synchronize(device)
        pairs = zip(marks[::2], marks[1::2], strict=True)
        found += [start.elapsed_time(end) / 1e3 for start, end in pairs]
    return found


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
