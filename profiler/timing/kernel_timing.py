"""Kernel timing on all ranks at once, sharing memory bandwidth.

On a core each case repeats up to a number of runs or a time; the minimum counts, since noise only
adds. Elsewhere :mod:`device_timing` takes medians. The ranks start every case together. A case
without room on a rank is skipped on all of them, and the sweep goes on; any other error ends it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ...executor.host.transfers import release
from ...spec.report.work_items import Kernel
from ..cases.all_cases import all_cases, sizes_for
from ..cases.case import Case, KernelRun
from ..cases.out_of_resources import ELSEWHERE, shortage
from ..cases.program_cases import program_cases
from ..store.profile_rows import case_key
from .device_timing import copies_to_miss_cache, time_on

if TYPE_CHECKING:
    from ...executor.launch.rank_context import RankContext

MIN_RUNS, MAX_RUNS = 3, 30
ENOUGH_S = 0.02
LONG_S = 0.25
"""A run as long as this is not repeated: first-run costs are negligible in it."""
DEVICE_S, HURRIED_S = 0.05, 0.0
"""Time to repeat a case on a device other than a core, and once the budget is spent."""
KEEP_S = 20.0
"""Seconds between two reports of results."""
NO_ROOM = math.inf
"""Seconds of a case without room on a rank."""


def warm_up(context: RankContext, payload: dict[str, Any]) -> None:
    """Job: start thread pools, libraries and clocks before any measurement."""
    square = torch.randn(512, 512, device=context.device)
    for _ in range(20):
        square = square.mm(square).div_(square.abs().max())
    if context.world_size > 1:
        dist.all_reduce(square)


def measure_kernels(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """Job: time all cases.

    Args:
        context: the rank.
        payload: ``coarse`` (bool), ``dtypes``, ``budget_s``: time limit, though every kind of
            kernel is timed once; ``known``: :func:`profile_rows.case_key` of the cases that an
            earlier sweep has timed; ``programs``: fields of the kernels to time in place of the
            grid of sizes, if any; one size of every kind is timed after them.

    Returns:
        ``rows`` as spec.cluster.machine_profile.KernelRow, the slowest rank's figure of each case,
        and ``skipped`` as its Skipped. New results are reported every ``KEEP_S`` as ``found`` of an
        event, so that an interrupted sweep loses little.
    """
    device = context.device
    timed = {(op, tuple(shape), *rest) for op, shape, *rest in payload.get("known", ())}
    start_s = time.perf_counter()
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    cases = _cases(payload, device)
    reported_s, reported = start_s, (0, 0)
    for number, case in enumerate(cases):
        if case_key(case.kernel) in timed:
            continue
        is_over = _is_over(start_s, payload["budget_s"], context)
        if is_over and not case.first:
            break
        local_s, spread, why = _time_or_skip(case, device, is_over)
        seconds, spread = _slowest(local_s, spread, context)
        if seconds == NO_ROOM:
            skipped.append({**_identity(case), "why": why or ELSEWHERE})
        else:
            rows.append(_row(case, seconds, spread))
        if number % 50 == 0:
            context.emit({"phase": "kernels", "done": len(rows)})
        if time.perf_counter() - reported_s > KEEP_S:
            results = {"rows": rows[reported[0] :], "skipped": skipped[reported[1] :]}
            context.emit({"phase": "kernels", "done": len(rows), "found": results})
            reported_s, reported = time.perf_counter(), (len(rows), len(skipped))
    return {"rows": rows, "skipped": skipped}


def _cases(payload: dict[str, Any], device: torch.device) -> Iterator[Case]:
    sizes = sizes_for(device, payload["coarse"])
    if programs := payload.get("programs"):
        kernels = [Kernel(op, tuple(shape), *rest) for op, shape, *rest in programs]
        rest_of_kinds = all_cases(sizes.middle(), payload["dtypes"], device)
        return chain(program_cases(kernels, sizes, device), rest_of_kinds)
    return all_cases(sizes, payload["dtypes"], device)


def _time_or_skip(case: Case, device: torch.device, is_over: bool) -> tuple[float, float, str]:
    try:
        if device.type == "cpu":
            return *time_case(case, most_runs=1 if is_over else MAX_RUNS), ""
        return *_time_on_device(case, device, HURRIED_S if is_over else DEVICE_S), ""
    except Exception as error:  # Triton's have no class in common with the library's
        reason = shortage(error)
        if reason is None:
            raise
    release(device)  # the exception's frames, and their tensors, are gone
    return NO_ROOM, 0.0, reason


def _time_on_device(case: Case, device: torch.device, budget_s: float) -> tuple[float, float]:
    copies = copies_to_miss_cache(case.kernel.traffic_bytes, device)
    rotation: list[KernelRun] = [case.prepare() for _ in range(copies)]
    timing = time_on(device, rotation, budget_s)
    return timing.median_s, timing.spread


def time_case(case: Case, most_runs: int = MAX_RUNS) -> tuple[float, float]:
    """Least seconds of a later run, and the median's excess."""
    run = case.prepare()
    start_all_s = time.perf_counter()
    run()
    first_s = time.perf_counter() - start_all_s
    if first_s > LONG_S:
        return first_s, 0.0
    times: list[float] = []
    start_all_s = time.perf_counter()
    while len(times) < min(MIN_RUNS, most_runs) or (
        len(times) < most_runs and time.perf_counter() - start_all_s < ENOUGH_S
    ):
        start_s = time.perf_counter()
        run()
        times.append(time.perf_counter() - start_s)
    times.sort()
    return times[0], times[len(times) // 2] / times[0] - 1


def _slowest(seconds: float, spread: float, context: RankContext) -> tuple[float, float]:
    if context.world_size == 1:
        return seconds, spread
    largest = torch.tensor([seconds, spread], dtype=torch.float64, device=context.device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return float(largest[0]), float(largest[1])


def _is_over(start_s: float, budget_s: float, context: RankContext) -> bool:
    is_over = time.perf_counter() - start_s > budget_s
    if context.world_size == 1:
        return is_over
    over = torch.tensor([float(is_over)], device=context.device)
    dist.broadcast(over, 0)
    return bool(over.item())


def _identity(case: Case) -> dict[str, Any]:
    kernel = case.kernel
    return {"op": kernel.op, "shape": list(kernel.shape), "dtype": kernel.dtype}


def _row(case: Case, seconds: float, spread: float) -> dict[str, Any]:
    kernel = case.kernel
    return {
        **_identity(case),
        "flops": kernel.flops,
        "traffic_bytes": kernel.traffic_bytes,
        "time_s": seconds,
        "spread": spread,
    }
