"""Timing collectives and messages over groups of ranks and sizes, all groups at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from ..executor.context import RankContext

COARSE_ELEMENTS = (2**8, 2**14, 2**18, 2**21)
FINE_ELEMENTS = (2**4, 2**8, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22)
RUNS = 7


def measure_links(context: RankContext, payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Job: time every kind of collective.

    Args:
        context: the rank.
        payload: ``coarse`` (bool).

    Returns:
        Rows as spec.profile.CollectiveRow; payloads are those of spec.kernels.Collective.
    """
    elements = COARSE_ELEMENTS if payload["coarse"] else FINE_ELEMENTS
    rows: list[dict[str, Any]] = []
    for size in _group_sizes(context.world_size):
        group = _my_group(context, size)
        for count in elements:
            for kind, run in _operations(group, size, count, context):
                seconds = _least_seconds(run) / (2 if kind == "send" else 1)
                payload_bytes = 4 * count
                rows.append(
                    {
                        "kind": kind,
                        "ranks": size,
                        "payload_bytes": payload_bytes,
                        "time_s": seconds,
                    }
                )
        context.emit({"phase": "links", "done": len(rows)})
    return rows


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
        ("all_gather", lambda: _quiet(dist.all_gather_single(whole, part, group=group))),
        ("reduce_scatter", lambda: _quiet(dist.reduce_scatter_single(part, whole, group=group))),
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


def _least_seconds(run: Callable[[], None]) -> float:
    """The least over runs of the slowest rank's seconds."""
    best = float("inf")
    run()
    for _ in range(RUNS):
        dist.barrier()
        start_s = time.perf_counter()
        run()
        taken = torch.tensor([time.perf_counter() - start_s], dtype=torch.float64)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        best = min(best, float(taken.item()))
    return best
