"""Planned addresses of a plan: recorded on its ranks, solved, and kept for its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...executor.groups.rank_layout import plan_device, plan_world_size
from ...executor.launch.pool import PoolOptions, WorkerPool
from ...executor.launch.timeouts import plan_timeouts
from ...planner.addresses.caching_allocator import caching_allocator_bytes
from ...planner.addresses.ranks import ALIGNMENT, planned_addresses
from ...planner.addresses.solve import solve_addresses
from ...spec.plan.plan import Plan
from ...spec.program_values import plans_addresses
from ...spec.report.allocation_trace import AllocationTrace
from ...spec.report.planned_addresses import (
    PlannedAddresses,
    RankAddresses,
    keep_addresses,
    kept_addresses,
)
from .dry_run_process import stage_documents

RECORD_JOB = "shardwright.executor.train.address_recording:record"
REHEARSAL = "shardwright.executor.train.address_rehearsal"


def require_addresses(
    plan: Plan, payload: Mapping[str, Any], on_event: Callable[[dict[str, Any]], None]
) -> PlannedAddresses | None:
    """Addresses for the ranks of a plan, kept ones or new ones; None if its run needs none.

    Args:
        plan: the plan.
        payload: of the train job that is to follow.
        on_event: told that steps are recorded first.

    Raises:
        RunError: its ranks failed.
    """
    if not plans_addresses(plan.program.techniques):
        return None
    if (kept := kept_addresses(plan.hash)) is not None:
        return kept
    on_event({"event": "note", "text": "recording the allocations of a step, to plan addresses"})
    found = planned_addresses(plan.hash, recorded_traces(plan, payload))
    keep_addresses(found)
    return found


def recorded_traces(plan: Plan, payload: Mapping[str, Any]) -> list[AllocationTrace]:
    """The requests of a step on each rank of a plan, recorded on this machine."""
    named = ("seed", "data", "tokenizer", "attention", "kernels", "random_tokens")
    wanted = {name: payload[name] for name in named if name in payload}
    limits = PoolOptions.from_timeouts(plan_timeouts(plan))
    with WorkerPool(plan_world_size(plan), plan_device(plan), limits) as pool:
        documents = pool.run(RECORD_JOB, {**wanted, "plan": plan.to_document()})
    return [AllocationTrace.from_document(document) for document in documents]


def address_document(plan: Plan) -> dict[str, Any] | None:
    """Addresses of a plan, JSON-ready; None if its run needs none, or without torch.

    Those of a run on this machine (``source`` ``recorded``), else of a rehearsal, which does not
    see what kernels ask for inside.
    """
    if not plans_addresses(plan.program.techniques):
        return None
    if (kept := kept_addresses(plan.hash)) is not None:
        ranks = [_recorded(kept, number) for number in range(len(kept.different))]
        return {"source": "recorded", "solutions": ranks}
    documents = stage_documents(plan, REHEARSAL)
    if documents is None:
        return None
    rows = [_rehearsed(number, row) for number, row in enumerate(documents)]
    return {"source": "rehearsed", "solutions": rows}


def _recorded(kept: PlannedAddresses, number: int) -> dict[str, Any]:
    ranks = [rank for rank, own in enumerate(kept.of_rank) if own == number]
    return {"ranks": ranks, **solution_document(kept.different[number])}


def solution_document(found: RankAddresses) -> dict[str, Any]:
    """Bytes, requests and offsets of a solution."""
    return {
        "arena_bytes": found.arena_bytes,
        "live_bytes": found.live_bytes,
        "by": found.by,
        "requests": len(found.sizes),
        "bytes": list(found.sizes),
        "offsets": list(found.offsets),
    }


def _rehearsed(stage: int, document: dict[str, Any]) -> dict[str, Any]:
    trace = AllocationTrace.from_document(document)
    placed = trace.placed(ALIGNMENT)
    solution = solve_addresses(placed)
    return {
        "stage": stage,
        "arena_bytes": solution.arena_bytes,
        "live_bytes": solution.live_bytes,
        "caching_allocator_bytes": caching_allocator_bytes(placed.requests),
        "by": solution.by,
        "requests": len(placed.requests),
        "bytes": [request.bytes for request in placed.requests],
        "offsets": list(solution.offsets),
    }


__all__ = ["address_document", "recorded_traces", "require_addresses"]
