"""Job: a fixed, timed computation that shows the machine's drift."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from shardwright.executor.launch.rank_context import RankContext

SIZE = 512
PRODUCTS = 12
REPEATS = 7


def gemm_seconds(context: RankContext, payload: dict[str, Any]) -> float:
    """Median seconds of a fixed number of products on all ranks.

    Args:
        context: the rank.
        payload: nothing is read from it.
    """
    generator = torch.Generator().manual_seed(context.rank)
    left, right = torch.randn(2, SIZE, SIZE, generator=generator).unbind()
    out = torch.empty(SIZE, SIZE)
    times = []
    for _ in range(REPEATS):
        dist.barrier()
        start_s = time.perf_counter()
        for _ in range(PRODUCTS):
            torch.mm(left, right, out=out)
        times.append(time.perf_counter() - start_s)
    return statistics.median(times)
