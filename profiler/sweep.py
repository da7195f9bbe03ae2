"""Measuring this machine: kernels, links, host time, within a budget of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..executor.launch import WorkerPool
from ..spec.plan import Plan
from ..spec.profile import CollectiveRow, KernelRow, MachineProfile
from .host_overhead import with_overheads
from .store import fingerprint, machine_facts

QUICK_BUDGET_S = 20.0
COARSE_BELOW_S = 40.0
HOST_SHARE = {True: 0.5, False: 0.3}
"""Part of the budget that is kept for links and whole steps; more where the grid is coarse."""
LINK_SHARE = 0.4
"""Part of what the kernels leave that links may take."""
PROBE_SHARE = 1 / 3
"""Part of what is left that one probe may take."""
END_S = 2.0
"""Seconds that the last probe and the pool's end may take."""
STEPS = 7
ROUNDS = 3
"""Most sweeps over everything: a machine has slow minutes, and the least of several stands."""
Rows = dict[tuple[Any, ...], dict[str, Any]]
OnEvent = Callable[[dict[str, Any]], None]


def measure(budget_s: float, ranks: int, on_event: OnEvent | None = None) -> MachineProfile:
    """A profile of this machine with ``ranks`` ranks at work.

    Args:
        budget_s: seconds it may take, start-up included; below 40 the grid is coarse.
        ranks: how many ranks work at once.
        on_event: called with progress events (dicts with a ``phase``).
    """
    start_s = time.monotonic()

    def left_s() -> float:
        return max(0.0, start_s + budget_s - END_S - time.monotonic())

    coarse = budget_s < COARSE_BELOW_S
    emit = on_event or (lambda event: None)
    emit({"phase": "start", "ranks": ranks})
    with WorkerPool(ranks) as pool:
        relay = _relay(emit)
        pool.run("shardwright.profiler.kernel_timing:warm_up", {}, on_event=relay)
        kernels: Rows = {}
        links: Rows = {}
        step_s: dict[str, float] = {}

        def least_step_s(plan: Plan) -> float:
            if plan.hash in step_s and not left_s():
                return step_s[plan.hash]
            seconds = _least_step_s(pool, plan, left_s() * PROBE_SHARE)
            step_s[plan.hash] = min(seconds, step_s.get(plan.hash, seconds))
            return step_s[plan.hash]

        for number in range(ROUNDS):
            began_s = left_s()
            payload = {
                "coarse": coarse,
                "dtypes": ["fp32"] if coarse else ["fp32", "bf16"],
                "budget_s": left_s() * (1 - HOST_SHARE[coarse]),
            }
            job = "shardwright.profiler.kernel_timing:measure_kernels"
            _keep_least(kernels, pool.run(job, payload, None, relay)[0])
            if ranks > 1:
                job = "shardwright.profiler.links:measure_links"
                limits = {"coarse": coarse, "budget_s": left_s() * LINK_SHARE}
                _keep_least(links, pool.run(job, limits, None, relay)[0])
            profile = _profile(ranks, [*kernels.values()], [*links.values()], start_s)
            emit({"phase": "host"})
            known = number > 0  # what every probe takes, at least from the first round
            is_over = (lambda: False) if known else (lambda: not left_s())
            profile = with_overheads(profile, least_step_s, coarse, is_over)
            if left_s() < began_s - left_s():  # as long as that round took
                break
    return replace(profile, duration_s=time.monotonic() - start_s)


def _keep_least(found: Rows, rows: list[dict[str, Any]]) -> None:
    """Add rows to those of earlier rounds; of what was timed before, the least stands."""
    for row in rows:
        shape = row.get("shape", (row.get("ranks"), row.get("payload_bytes")))
        key = (row.get("op", row.get("kind")), tuple(shape), row.get("dtype"))
        if key not in found or row["time_s"] < found[key]["time_s"]:
            found[key] = row


def _relay(emit: OnEvent) -> Callable[[int, dict[str, Any]], None]:
    """Pass on what rank 0 reports."""

    def relay(rank: int, event: dict[str, Any]) -> None:
        if rank == 0:
            emit(event)

    return relay


def _least_step_s(pool: WorkerPool, plan: Plan, budget_s: float) -> float:
    payload = {"plan": plan.to_document(), "steps": STEPS, "budget_s": budget_s}
    times: list[float] = pool.run("shardwright.profiler.step_timing:step_seconds", payload)[0]
    return min(times)


def _profile(
    ranks: int, kernels: list[dict[str, Any]], links: list[dict[str, Any]], start_s: float
) -> MachineProfile:
    return MachineProfile(
        fingerprint=fingerprint(),
        machine=machine_facts(),
        ranks=ranks,
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        duration_s=max(time.monotonic() - start_s, 1e-3),
        kernels=tuple(KernelRow(**{**row, "shape": tuple(row["shape"])}) for row in kernels),
        collectives=tuple(CollectiveRow(**row) for row in links),
    )
