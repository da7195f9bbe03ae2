"""Copies between a device and its host, and within a device, on every rank at once.

Host memory pinned and pageable, each direction alone, and pinned ones both ways at once. A core
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
        payload: ``coarse`` (bool), ``budget_s``: stop after so long, though not before one size.

    Returns:
        ``rows`` as spec.profile.CopyRow, the slowest rank's, and ``skipped``.
    """
    device = context.device
    if device.type == "cpu":
        return {"rows": [], "skipped": [{"op": kind, "why": NO_HOST_COPY} for kind in KINDS]}
    end_s = time.perf_counter() + payload["budget_s"]
    sizes = COARSE_BYTES if payload["coarse"] else FINE_BYTES
    rows: list[dict[str, Any]] = []
    for size in reversed(sizes):  # the largest says most
        for what, timing in _of_size(size, device):
            rows.append({**what, "payload_bytes": size, **_slowest(timing, context)})
        over = torch.tensor([float(time.perf_counter() > end_s)], device=device)
        if context.world_size > 1:
            dist.all_reduce(over, dist.ReduceOp.MAX)
        if over.item():
            break
    return {"rows": rows, "skipped": []}


def _of_size(size: int, device: torch.device) -> list[tuple[dict[str, Any], Timing]]:
    """Every kind of copy of so many bytes."""
    found: list[tuple[dict[str, Any], Timing]] = []
    near = torch.ones(size, dtype=torch.uint8, device=device)
    for pinned in (True, False):
        host = torch.ones(size, dtype=torch.uint8, pin_memory=pinned)
        for kind, target, source in (
            ("host_to_device", near, host),
            ("device_to_host", host, near),
        ):
            timing = time_on(device, [_copy(target, source)], BUDGET_S)
            found.append(({"kind": kind, "pinned": pinned}, timing))
    found += _both_ways(near, device)
    copies = copies_to_miss_cache(2 * size, device)
    rotation = [_copy(torch.empty_like(near), near.clone()) for _ in range(copies)]
    return [*found, ({"kind": "device_copy"}, time_on(device, rotation, BUDGET_S))]


def _copy(target: Tensor, source: Tensor) -> Callable[[], object]:
    return lambda: target.copy_(source, non_blocking=True)


def _both_ways(near: Tensor, device: torch.device) -> list[tuple[dict[str, Any], Timing]]:
    """Pinned copies in and out on two streams; each takes until both have ended."""
    back = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    hosts = [torch.ones(near.numel(), dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    there, here = torch.empty_like(near), near
    finish(device)

    def run() -> None:
        current = torch.cuda.current_stream(device)
        back.wait_stream(current)
        there.copy_(hosts[0], non_blocking=True)
        with torch.cuda.stream(back):
            hosts[1].copy_(here, non_blocking=True)
        current.wait_stream(back)

    timing = time_on(device, [run], BUDGET_S)
    both = {"pinned": True, "both_ways": True}
    return [({"kind": kind, **both}, timing) for kind in KINDS[:2]]


def _slowest(timing: Timing, context: RankContext) -> dict[str, float]:
    values = [timing.median_s, timing.spread]
    both = torch.tensor(values, dtype=torch.float64, device=context.device)
    if context.world_size > 1:
        dist.all_reduce(both, dist.ReduceOp.MAX)
    return {"time_s": float(both[0]), "spread": float(both[1])}
