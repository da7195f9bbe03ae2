"""Timing kernels on every rank at once, so that shared memory bandwidth is in the figures.

On a core each case runs until it has been seen often enough or long enough; the minimum stands,
since whatever else the machine does only adds. Elsewhere :mod:`device_timing` takes medians. The
ranks start every case together. A case that a rank has no room for is skipped on all of them,
and the sweep goes on; any other error ends it.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ...executor.host.transfers import release
from ..cases.all_cases import all_cases, sizes_for
from ..cases.case import Case, KernelRun
from ..cases.out_of_resources import ELSEWHERE, shortage
from ..store.profile_rows import case_key
from .device_timing import copies_to_miss_cache, time_on

if TYPE_CHECKING:
    from ...executor.launch.rank_context import RankContext

MIN_RUNS, MAX_RUNS = 3, 30
ENOUGH_S = 0.02
LONG_S = 0.25
"""A run as long as this is not repeated: what the first one pays is lost in it."""
DEVICE_S, HURRIED_S = 0.05, 0.0
"""How long a case is repeated on a device other than a core; where time is up."""
KEEP_S = 20.0
"""Between two reports of what was found."""
NO_ROOM = math.inf
"""Seconds of a case that a rank has no room for."""


def warm_up(context: RankContext, payload: dict[str, Any]) -> None:
    """Job: start thread pools, libraries and clocks, so that no measurement pays for it."""
    square = torch.randn(512, 512, device=context.device)
    for _ in range(20):
        square = square.mm(square).div_(square.abs().max())
    if context.world_size > 1:
        dist.all_reduce(square)


def measure_kernels(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Job: time all cases.

    Args:
        context: the rank.
        payload: ``coarse`` (bool), ``dtypes``, ``budget_s``: stop after so long, though not
            before every kind of kernel was timed once; ``known``: :func:`profile_rows.case_key` of
            what an earlier sweep has timed.

    Returns:
        ``rows`` as spec.profile.KernelRow, the slowest rank's figure of each case, and
        ``skipped`` as spec.profile.Skipped. What is new is reported every ``KEEP_S`` as
        ``found`` of an event, so that a sweep that is cut short loses little.
    """
    device = context.device
    known = {(op, tuple(shape), *rest) for op, shape, *rest in payload.get("known", ())}
    start_s = time.perf_counter()
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    cases = all_cases(sizes_for(device, payload["coarse"]), payload["dtypes"], device)
    told_s, told = start_s, (0, 0)
    for number, case in enumerate(cases):
        if case_key(case.kernel) in known:
            continue
        is_over = _over(start_s, payload["budget_s"], context)
        if is_over and not case.first:
            break
        here_s, spread, why = _tried(case, device, is_over)
        seconds, spread = _slowest(here_s, spread, context)
        if seconds == NO_ROOM:
            skipped.append({**_named(case), "why": why or ELSEWHERE})
        else:
            rows.append(_row(case, seconds, spread))
        if number % 50 == 0:
            context.emit({"phase": "kernels", "done": len(rows)})
        if time.perf_counter() - told_s > KEEP_S:
            found = {"rows": rows[told[0] :], "skipped": skipped[told[1] :]}
            context.emit({"phase": "kernels", "done": len(rows), "found": found})
            told_s, told = time.perf_counter(), (len(rows), len(skipped))
    return {"rows": rows, "skipped": skipped}


def _tried(case: Case, device: torch.device, is_over: bool) -> tuple[float, float, str]:
    """Seconds, spread, and why there are none; all memory is free again where it did not do."""
    try:
        if device.type == "cpu":
            return *time_case(case, most_runs=1 if is_over else MAX_RUNS), ""
        return *_time_on_device(case, device, HURRIED_S if is_over else DEVICE_S), ""
    except Exception as error:  # Triton's have no class in common with the library's
        why = shortage(error)
        if why is None:
            raise
    release(device)  # with the exception its frames went, and what they held
    return NO_ROOM, 0.0, why


def _time_on_device(case: Case, device: torch.device, budget_s: float) -> tuple[float, float]:
    copies = copies_to_miss_cache(case.kernel.traffic_bytes, device)
    rotation: list[KernelRun] = [case.prepare() for _ in range(copies)]
    found = time_on(device, rotation, budget_s)
    return found.median_s, found.spread


def time_case(case: Case, most_runs: int = MAX_RUNS) -> tuple[float, float]:
    """Least seconds of a run on a core after the first, and how far the median lies above it."""
    run = case.prepare()
    began_s = time.perf_counter()
    run()
    first_s = time.perf_counter() - began_s
    if first_s > LONG_S:
        return first_s, 0.0
    times: list[float] = []
    began_s = time.perf_counter()
    while len(times) < min(MIN_RUNS, most_runs) or (
        len(times) < most_runs and time.perf_counter() - began_s < ENOUGH_S
    ):
        start_s = time.perf_counter()
        run()
        times.append(time.perf_counter() - start_s)
    times.sort()
    return times[0], times[len(times) // 2] / times[0] - 1


def _slowest(seconds: float, spread: float, context: RankContext) -> tuple[float, float]:
    """The slowest rank's figures; also keeps the ranks in step."""
    if context.world_size == 1:
        return seconds, spread
    both = torch.tensor([seconds, spread], dtype=torch.float64, device=context.device)
    dist.all_reduce(both, dist.ReduceOp.MAX)
    return float(both[0]), float(both[1])


def _over(start_s: float, budget_s: float, context: RankContext) -> bool:
    """Whether the budget is spent, as rank 0 sees it."""
    is_over = time.perf_counter() - start_s > budget_s
    if context.world_size == 1:
        return is_over
    over = torch.tensor([float(is_over)], device=context.device)
    dist.broadcast(over, 0)
    return bool(over.item())


def _named(case: Case) -> dict[str, Any]:
    kernel = case.kernel
    return {"op": kernel.op, "shape": list(kernel.shape), "dtype": kernel.dtype}


def _row(case: Case, seconds: float, spread: float) -> dict[str, Any]:
    kernel = case.kernel
    return {
        **_named(case),
        "flops": kernel.flops,
        "traffic_bytes": kernel.traffic_bytes,
        "time_s": seconds,
        "spread": spread,
    }
