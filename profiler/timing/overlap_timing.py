"""Host time of launches, and slowdown of overlapped work.

Both concern devices beside the host only: a core computes, launches and communicates in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ...executor.host.transfers import finish
from .product_load import MatmulLoad, timed_on_stream

if TYPE_CHECKING:
    from ...executor.launch.rank_context import RankContext

LAUNCHES = 200
"""Launches between two waits, few enough that the queue is never full."""
ROUNDS = 9
SHARED_S = 0.02
"""Approximate time of each of the two overlapped works."""
SHARED_BYTES = 2**26
MAX_REPEATS = 500
LEAST, MOST = 1.0, 2.0
"""Full overlap, and none."""
ON_CORES = "a core computes, launches and communicates in turn"


def measure_sharing(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Job: ``launch_s`` and ``overlap_slowdown``, the slowest rank's; ``skipped`` on a core."""
    if context.device.type == "cpu":
        skipped = [{"op": op, "why": ON_CORES} for op in ("launch", "overlap", "beside_product")]
        return {"skipped": skipped}
    values = [_launch_s(context.device), _slowdown(context)]
    largest = torch.tensor(values, dtype=torch.float64, device=context.device)
    if context.world_size > 1:
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return {"launch_s": float(largest[0]), "overlap_slowdown": float(largest[1]), "skipped": []}


def _launch_s(device: torch.device) -> float:
    """Host seconds of one launch through torch into an empty queue."""
    tensor = torch.zeros(1, device=device)
    times = []
    for _ in range(ROUNDS):
        finish(device)
        start_s = time.perf_counter()
        for _ in range(LAUNCHES):
            tensor.add_(1.0)
        times.append((time.perf_counter() - start_s) / LAUNCHES)
    finish(device)
    return statistics.median(times)


def _slowdown(context: RankContext) -> float:
    """Slowdown of products overlapped with an all-reduce or device copies."""
    device = context.device
    load = MatmulLoad(device)
    shared = torch.ones(SHARED_BYTES // 4, device=device)
    other = torch.empty_like(shared)

    def work() -> object:
        return dist.all_reduce(shared) if context.world_size > 1 else other.copy_(shared)

    work()
    once_s = _largest(timed_on_stream(work, device), context)
    repeats = max(1, min(MAX_REPEATS, round(SHARED_S / once_s)))
    products = load.count_for(_largest(SHARED_S, context))

    def repeated() -> None:
        for _ in range(repeats):
            work()

    def together() -> None:
        load.start(products)
        repeated()

    factors = []
    for _ in range(ROUNDS):
        alone_s = _clocked(repeated, context)
        products_s = _clocked(partial(load.start, products), context)
        together_s = _clocked(together, context)
        factors.append(sharing_factor(alone_s, products_s, together_s))
    return statistics.median(factors)


def _largest(value: float, context: RankContext) -> float:
    largest = torch.tensor([value], dtype=torch.float64, device=context.device)
    if context.world_size > 1:
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return float(largest.item())


def _clocked(run: Callable[[], object], context: RankContext) -> float:
    finish(context.device)
    if context.world_size > 1:
        dist.barrier()
        finish(context.device)
    start_s = time.perf_counter()
    run()
    finish(context.device)
    return time.perf_counter() - start_s


def sharing_factor(first_s: float, second_s: float, together_s: float) -> float:
    """The factor f of costmodel.pricing.overlap.

    Together = longer + (f - 1) · shorter.
    """
    longer_s, shorter_s = max(first_s, second_s), min(first_s, second_s)
    return min(MOST, max(LEAST, 1.0 + (together_s - longer_s) / shorter_s))
