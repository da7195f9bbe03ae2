"""Timing collectives and messages over groups of ranks and sizes, all groups at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..executor.torch_api import all_gather_single, reduce_scatter_single

if TYPE_CHECKING:
    from ..executor.context import RankContext

COARSE_ELEMENTS = (2**18, 2**8, 2**21, 2**14)
FINE_ELEMENTS = (2**18, 2**8, 2**22, 2**14, 2**4, 2**12, 2**16, 2**20)
"""In the order in which they are timed: what says most of a curve comes first."""
RUNS = 7


def measure_links(context: RankContext, payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Job: time every kind of collective.

    Args:
        context: the rank.
        payload: ``coarse`` (bool), ``budget_s``: stop after so long, though not before every
            kind was timed once over groups of every size.

    Returns:
        Rows as spec.profile.CollectiveRow; payloads are those of spec.kernels.Collective.
    """
    elements = COARSE_ELEMENTS if payload["coarse"] else FINE_ELEMENTS
    end_s = time.perf_counter() + payload["budget_s"]
    rows: list[dict[str, Any]] = []
    groups = {size: _my_group(context, size) for size in _group_sizes(context.world_size)}
    is_over = False
    for number, count in enumerate(elements):
        for size, group in groups.items():
            for kind, run in _operations(group, size, count, context):
                if is_over and number:
                    return rows
                seconds, is_over = _least_seconds(run, end_s)
                rows.append(_row(kind, size, 4 * count, seconds))
        context.emit({"phase": "links", "done": len(rows)})
    return rows


def _row(kind: str, ranks: int, payload_bytes: int, seconds: float) -> dict[str, Any]:
    time_s = seconds / (2 if kind == "send" else 1)  # a message each way was timed
    return {"kind": kind, "ranks": ranks, "payload_bytes": payload_bytes, "time_s": time_s}


def _group_sizes(world_size: int) -> list[int]:
    """Sizes of two or more that divide the world."""
    return [n for n in range(2, world_size + 1) if world_size % n == 0]


def _my_group(context: RankContext, size: int) -> dist.ProcessGroup:
    """The group of ``size`` neighbouring ranks that holds this rank."""
    mine: dist.ProcessGroup | None = None
    for first in range(0, context.world_size, size):
        ranks = list(range(first, first + size))
        group = dist.new_group(ranks)
        if context.rank in ranks:
            mine = group
    if mine is None:
        raise RuntimeError("every rank is in a group of every size that divides the world")
    return mine


def _operations(
    group: dist.ProcessGroup, size: int, count: int, context: RankContext
) -> list[tuple[str, Callable[[], None]]]:
    """Collectives whose largest buffer has ``count`` float32 elements, and a message."""
    whole = torch.ones(max(count // size, 1) * size)
    part = torch.ones(max(count // size, 1))
    found: list[tuple[str, Callable[[], None]]] = [
        ("all_reduce", lambda: _quiet(dist.all_reduce(whole, group=group))),
        ("all_gather", lambda: _quiet(all_gather_single(whole, part, group=group))),
        ("reduce_scatter", lambda: _quiet(reduce_scatter_single(part, whole, group=group))),
    ]
    if size == 2:
        peer = context.rank ^ 1
        message = torch.ones(count)
        found.append(("send", lambda: _there_and_back(message, peer, group)))
    return found


def _quiet(work: object) -> None:
    """Ignore what a synchronous collective returns."""


def _there_and_back(message: torch.Tensor, peer: int, group: dist.ProcessGroup) -> None:
    """Half of what is timed: one message each way."""
    rank = dist.get_rank()
    if rank < peer:
        dist.send(message, peer, group=group)
        dist.recv(message, peer, group=group)
    else:
        dist.recv(message, peer, group=group)
        dist.send(message, peer, group=group)


def _least_seconds(run: Callable[[], None], end_s: float) -> tuple[float, bool]:
    """The least over runs of the slowest rank's seconds, and whether any rank is past ``end_s``.

    All ranks get the same answer, so all stop at the same run; one is timed in any case.
    """
    best, is_over = float("inf"), False
    run()
    for _ in range(RUNS):
        dist.barrier()
        start_s = time.perf_counter()
        run()
        now_s = time.perf_counter()
        both = torch.tensor([now_s - start_s, float(now_s > end_s)], dtype=torch.float64)
        dist.all_reduce(both, dist.ReduceOp.MAX)
        best, is_over = min(best, float(both[0])), bool(both[1])
        if is_over:
            break
    return best, is_over
