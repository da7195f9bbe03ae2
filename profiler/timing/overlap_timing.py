"""How long a launch takes the host, and by how much work that shares a device slows.

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
"""Between two waits: few enough that the queue is never full and the host never waits for it."""
ROUNDS = 9
SHARED_S = 0.02
"""About how long each of two works takes whose sharing is timed."""
SHARED_BYTES = 2**26
MAX_REPEATS = 500
LEAST, MOST = 1.0, 2.0
"""Nothing lost, and one after the other."""
ON_CORES = "a core computes, launches and communicates in turn"


def measure_sharing(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Job: ``launch_s`` and ``overlap_slowdown``, the slowest rank's; ``skipped`` on a core."""
    if context.device.type == "cpu":
        skipped = [{"op": op, "why": ON_CORES} for op in ("launch", "overlap", "beside_product")]
        return {"skipped": skipped}
    values = [_launch_s(context.device), _slowdown(context)]
    both = torch.tensor(values, dtype=torch.float64, device=context.device)
    if context.world_size > 1:
        dist.all_reduce(both, dist.ReduceOp.MAX)
    return {"launch_s": float(both[0]), "overlap_slowdown": float(both[1]), "skipped": []}


def _launch_s(device: torch.device) -> float:
    """Host seconds of one launch through the library (Python and dispatch) into an empty queue."""
    one = torch.zeros(1, device=device)
    found = []
    for _ in range(ROUNDS):
        finish(device)
        start_s = time.perf_counter()
        for _ in range(LAUNCHES):
            one.add_(1.0)
        found.append((time.perf_counter() - start_s) / LAUNCHES)
    finish(device)
    return statistics.median(found)


def _slowdown(context: RankContext) -> float:
    """Of products beside a sum over all ranks, or with one rank beside copies on the device."""
    device = context.device
    load = MatmulLoad(device)
    shared = torch.ones(SHARED_BYTES // 4, device=device)
    other = torch.empty_like(shared)

    def work() -> object:
        return dist.all_reduce(shared) if context.world_size > 1 else other.copy_(shared)

    work()
    once_s = _most(timed_on_stream(work, device), context)
    repeats = max(1, min(MAX_REPEATS, round(SHARED_S / once_s)))
    products = load.count_for(_most(SHARED_S, context))

    def repeated() -> None:
        for _ in range(repeats):
            work()

    def together() -> None:
        load.start(products)
        repeated()

    found = []
    for _ in range(ROUNDS):
        alone_s = _clocked(repeated, context)
        products_s = _clocked(partial(load.start, products), context)
        together_s = _clocked(together, context)
        found.append(sharing_factor(alone_s, products_s, together_s))
    return statistics.median(found)


def _most(value: float, context: RankContext) -> float:
    """The largest of all ranks' values, so that all repeat alike."""
    found = torch.tensor([value], dtype=torch.float64, device=context.device)
    if context.world_size > 1:
        dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found.item())


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
    """The factor f of costmodel.overlap: together they take the longer plus (f - 1) the shorter.

    Args:
        first_s: seconds of one alone.
        second_s: of the other alone.
        together_s: until both have ended, begun at once.
    """
    longer_s, shorter_s = max(first_s, second_s), min(first_s, second_s)
    return min(MOST, max(LEAST, 1.0 + (together_s - longer_s) / shorter_s))
