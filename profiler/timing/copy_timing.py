"""Host-device and on-device copies, on every rank at once.

Pinned and pageable host memory, each direction alone, and pinned ones both ways at once. A core
has none of them: it computes in the host's memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...executor.host.transfers import finish
from .device_timing import Timing, copies_to_miss_cache, time_on

if TYPE_CHECKING:
    from ...executor.launch.rank_context import RankContext

COARSE_BYTES = (2**16, 2**28)
FINE_BYTES = (2**12, 2**16, 2**20, 2**24, 2**28)
NO_HOST_COPY = "a core computes in the host's memory"
KINDS = ("host_to_device", "device_to_host", "device_copy")
BUDGET_S = 0.05


def measure_copies(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Job: time copies of every kind.

    Args:
        context: the rank.
        payload: ``coarse`` (bool), ``budget_s``: time limit, checked after the first size.

    Returns:
        ``rows`` as spec.cluster.machine_profile.CopyRow, the slowest rank's, and ``skipped``.
    """
    device = context.device
    if device.type == "cpu":
        return {"rows": [], "skipped": [{"op": kind, "why": NO_HOST_COPY} for kind in KINDS]}
    end_s = time.perf_counter() + payload["budget_s"]
    sizes = COARSE_BYTES if payload["coarse"] else FINE_BYTES
    rows: list[dict[str, Any]] = []
    for size in reversed(sizes):  # the largest tells most
        for description, timing in _time_size(size, device):
            rows.append({**description, "payload_bytes": size, **_slowest(timing, context)})
        is_over = torch.tensor([float(time.perf_counter() > end_s)], device=device)
        if context.world_size > 1:
            dist.all_reduce(is_over, dist.ReduceOp.MAX)
        if is_over.item():
            break
    return {"rows": rows, "skipped": []}


def _time_size(size: int, device: torch.device) -> list[tuple[dict[str, Any], Timing]]:
    """Every kind of copy of ``size`` bytes."""
    timings: list[tuple[dict[str, Any], Timing]] = []
    device_buffer = torch.ones(size, dtype=torch.uint8, device=device)
    for pinned in (True, False):
        host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
        for kind, target, source in (
            ("host_to_device", device_buffer, host),
            ("device_to_host", host, device_buffer),
        ):
            timing = time_on(device, [_copy(target, source)], BUDGET_S)
            timings.append(({"kind": kind, "pinned": pinned}, timing))
    timings += _both_ways(device_buffer, device)
    copies = copies_to_miss_cache(2 * size, device)
    rotation = [
        _copy(torch.empty_like(device_buffer), device_buffer.clone()) for _ in range(copies)
    ]
    return [*timings, ({"kind": "device_copy"}, time_on(device, rotation, BUDGET_S))]


def _copy(target: Tensor, source: Tensor) -> Callable[[], object]:
    return lambda: target.copy_(source, non_blocking=True)


def _both_ways(device_buffer: Tensor, device: torch.device) -> list[tuple[dict[str, Any], Timing]]:
    """Pinned copies in and out on two streams.

    Each takes until both have ended.
    """
    copy_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    host_buffers = [
        torch.ones(device_buffer.numel(), dtype=torch.uint8, pin_memory=True) for _ in range(2)
    ]
    target, source = torch.empty_like(device_buffer), device_buffer
    finish(device)

    def run() -> None:
        current = torch.cuda.current_stream(device)
        copy_stream.wait_stream(current)
        target.copy_(host_buffers[0], non_blocking=True)
        with torch.cuda.stream(copy_stream):
            host_buffers[1].copy_(source, non_blocking=True)
        current.wait_stream(copy_stream)

    timing = time_on(device, [run], BUDGET_S)
    options = {"pinned": True, "both_ways": True}
    return [({"kind": kind, **options}, timing) for kind in KINDS[:2]]


def _slowest(timing: Timing, context: RankContext) -> dict[str, float]:
    values = [timing.median_s, timing.spread]
    largest = torch.tensor(values, dtype=torch.float64, device=context.device)
    if context.world_size > 1:
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return {"time_s": float(largest[0]), "spread": float(largest[1])}
