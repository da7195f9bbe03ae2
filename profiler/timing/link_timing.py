"""Timing of collectives and messages by group and payload size.

Over gloo between cores, over NCCL between GPUs, alone; and, where devices have streams, overlapped
with matrix products on the same device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ...executor.host.transfers import finish
from ...executor.torch_compat import all_gather_single, reduce_scatter_single
from .product_load import MatmulLoad, timed_on_stream

if TYPE_CHECKING:
    from ...executor.launch.rank_context import RankContext

CUDA_COARSE_ELEMENTS = (2**20, 2**8, 2**26, 2**16)
CUDA_FINE_ELEMENTS = (2**20, 2**8, 2**26, 2**16, 2**28, 2**24, 2**12, 2**22, 2**18, 2**14)
COARSE_ELEMENTS = (2**18, 2**8, 2**21, 2**14)
FINE_ELEMENTS = (2**18, 2**8, 2**22, 2**14, 2**4, 2**12, 2**16, 2**20)
"""In the order of timing: the most telling points of a curve come first."""
RUNS = 7


def measure_links(context: RankContext, payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Job: time every kind of collective.

    Args:
        context: the rank.
        payload: ``coarse`` (bool), ``budget_s``: time limit, though every kind is timed once over
            groups of every size.

    Returns:
        Rows as spec.cluster.machine_profile.CollectiveRow; payloads as of
        spec.report.work_items.Collective.
    """
    elements = _elements(context.device, payload["coarse"])
    load = MatmulLoad(context.device) if context.device.type == "cuda" else None
    end_s = time.perf_counter() + payload["budget_s"]
    rows: list[dict[str, Any]] = []
    groups = {size: _my_group(context, size) for size in _group_sizes(context.world_size)}
    is_over = False
    for number, count in enumerate(elements):
        for size, group in groups.items():
            for kind, run in _operations(group, size, count, context):
                if is_over and number:
                    return rows
                timing, is_over = _timed(run, end_s, context.device)
                rows.append(_row(kind, size, 4 * count, timing))
                if load is not None and not is_over:
                    overlapped, is_over = _timed(run, end_s, context.device, load)
                    rows.append({**_row(kind, size, 4 * count, overlapped), "beside_product": True})
        context.emit({"phase": "links", "done": len(rows)})
    return rows


def _elements(device: torch.device, coarse: bool) -> tuple[int, ...]:
    if device.type == "cpu":
        return COARSE_ELEMENTS if coarse else FINE_ELEMENTS
    return CUDA_COARSE_ELEMENTS if coarse else CUDA_FINE_ELEMENTS


def _row(kind: str, ranks: int, payload_bytes: int, timing: tuple[float, float]) -> dict[str, Any]:
    seconds, spread = timing
    time_s = seconds / (2 if kind == "send" else 1)  # a message each way was timed
    row = {"kind": kind, "ranks": ranks, "payload_bytes": payload_bytes, "time_s": time_s}
    return {**row, "spread": spread} if spread else row


def _group_sizes(world_size: int) -> list[int]:
    return [n for n in range(2, world_size + 1) if world_size % n == 0]


def _my_group(context: RankContext, size: int) -> dist.ProcessGroup:
    own_group: dist.ProcessGroup | None = None
    for first in range(0, context.world_size, size):
        ranks = list(range(first, first + size))
        group = dist.new_group(ranks)
        if context.rank in ranks:
            own_group = group
    if own_group is None:
        raise RuntimeError("every rank is in a group of every size that divides the world")
    return own_group


def _operations(
    group: dist.ProcessGroup, size: int, count: int, context: RankContext
) -> list[tuple[str, Callable[[], None]]]:
    """Collectives whose largest buffer has ``count`` float32 elements, and a message."""
    full = torch.ones(max(count // size, 1) * size, device=context.device)
    part = torch.ones(max(count // size, 1), device=context.device)
    operations: list[tuple[str, Callable[[], None]]] = [
        ("all_reduce", lambda: _ignore(dist.all_reduce(full, group=group))),
        ("all_gather", lambda: _ignore(all_gather_single(full, part, group=group))),
        ("reduce_scatter", lambda: _ignore(reduce_scatter_single(part, full, group=group))),
    ]
    if size == 2:
        peer = context.rank ^ 1
        message = torch.ones(count, device=context.device)
        operations.append(("send", lambda: _there_and_back(message, peer, group)))
    return operations


def _ignore(work: object) -> None:
    """Ignore the result of a synchronous collective."""


def _there_and_back(message: torch.Tensor, peer: int, group: dist.ProcessGroup) -> None:
    rank = dist.get_rank()
    if rank < peer:
        dist.send(message, peer, group=group)
        dist.recv(message, peer, group=group)
    else:
        dist.recv(message, peer, group=group)
        dist.send(message, peer, group=group)


def _timed(
    run: Callable[[], None], end_s: float, device: torch.device, load: MatmulLoad | None = None
) -> tuple[tuple[float, float], bool]:
    """Seconds of the slowest rank and their spread.

    True if any rank is past ``end_s``.

    On cores the least of the runs, on other devices the median. All ranks get the same answer, so
    all stop at the same run; one is timed in any case.
    """
    times: list[float] = []
    is_over = False
    run()
    for _ in range(RUNS):
        dist.barrier()
        finish(device)
        seconds = _clocked(run, device) if load is None else load.overlapped_seconds(run)
        now_s = time.perf_counter()
        values = [seconds, float(now_s > end_s)]
        largest = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        times.append(float(largest[0]))
        is_over = bool(largest[1])
        if is_over:
            break
    times.sort()
    middle_s = times[len(times) // 2]
    if device.type == "cpu":
        return (times[0], middle_s / times[0] - 1), is_over
    low, high = times[len(times) // 4], times[3 * len(times) // 4]
    return (middle_s, (high - low) / middle_s), is_over


def _clocked(run: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        return timed_on_stream(run, device)
    start_s = time.perf_counter()
    run()
    return time.perf_counter() - start_s
