"""Timing kernels on every rank at once, so that shared memory bandwidth is in the figures.

Each case runs until it has been seen often enough or long enough; the minimum stands, since
whatever else the machine does only adds. The ranks start every case together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .cases import COARSE, FINE, Case, all_cases

if TYPE_CHECKING:
    from ..executor.context import RankContext

MIN_RUNS, MAX_RUNS = 3, 30
ENOUGH_S = 0.02
LONG_S = 0.25
"""A run as long as this is not repeated: what the first one pays is lost in it."""


def warm_up(context: RankContext, payload: dict[str, Any]) -> None:
    """Job: start the thread pools and caches, so that no measurement pays for it."""
    square = torch.randn(512, 512)
    for _ in range(20):
        square = square.mm(square).div_(square.abs().max())
    if context.world_size > 1:
        dist.all_reduce(square)


def measure_kernels(context: RankContext, payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Job: time all cases.

    Args:
        context: the rank.
        payload: ``coarse`` (bool), ``dtypes``, ``budget_s``: stop after so long, though not
            before every kind of kernel was timed once.

    Returns:
        Rows as spec.profile.KernelRow, the slowest rank's minimum of each case.
    """
    sizes = COARSE if payload["coarse"] else FINE
    start_s = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for number, case in enumerate(all_cases(sizes, payload["dtypes"])):
        is_over = _over(start_s, payload["budget_s"], context)
        if is_over and not case.first:
            break
        seconds, spread = time_case(case, most_runs=1 if is_over else MAX_RUNS)
        rows.append(_row(case, *_slowest(seconds, spread, context)))
        if number % 50 == 0:
            context.emit({"phase": "kernels", "done": len(rows)})
    return rows


def time_case(case: Case, most_runs: int = MAX_RUNS) -> tuple[float, float]:
    """Least seconds of a run after the first, and how far the median lies above it."""
    began_s = time.perf_counter()
    case.run()
    first_s = time.perf_counter() - began_s
    if first_s > LONG_S:
        return first_s, 0.0
    times: list[float] = []
    began_s = time.perf_counter()
    while len(times) < min(MIN_RUNS, most_runs) or (
        len(times) < most_runs and time.perf_counter() - began_s < ENOUGH_S
    ):
        start_s = time.perf_counter()
        case.run()
        times.append(time.perf_counter() - start_s)
    times.sort()
    return times[0], times[len(times) // 2] / times[0] - 1


def _slowest(seconds: float, spread: float, context: RankContext) -> tuple[float, float]:
    """The slowest rank's figures; also keeps the ranks in step."""
    if context.world_size == 1:
        return seconds, spread
    both = torch.tensor([seconds, spread], dtype=torch.float64)
    dist.all_reduce(both, dist.ReduceOp.MAX)
    return float(both[0]), float(both[1])


def _over(start_s: float, budget_s: float, context: RankContext) -> bool:
    """Whether the budget is spent, as rank 0 sees it."""
    over = torch.tensor([float(time.perf_counter() - start_s > budget_s)])
    if context.world_size > 1:
        dist.broadcast(over, 0)
    return bool(over.item())


def _row(case: Case, seconds: float, spread: float) -> dict[str, Any]:
    kernel = case.kernel
    return {
        "op": kernel.op,
        "shape": list(kernel.shape),
        "dtype": kernel.dtype,
        "flops": kernel.flops,
        "traffic_bytes": kernel.traffic_bytes,
        "time_s": seconds,
        "spread": spread,
    }
