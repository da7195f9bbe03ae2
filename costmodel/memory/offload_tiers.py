"""Memory outside the device: techniques' bytes on host or drive.

A micro-batch's bytes last from its forward to its backward; states stay.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...spec.plan.plan import Plan
from ...spec.report.report import MEMORY_TERMS, MemoryRow
from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import StagePasses
from ..symbolic.tier_bytes import TIERS, StateBytes, Tier, TierBytes, total_bytes


def tier_rows(
    plan: Plan,
    rank_location: tuple[int, str],
    passes: StagePasses,
    chunks: tuple[StageChunk, ...],
    step_states: tuple[StateBytes, ...] = (),
) -> tuple[MemoryRow, ...]:
    """Peak bytes of tiers other than the device's; empty if unused.

    A tier absent from the cluster has no capacity. ``passes`` and ``chunks`` are the stage's,
    ``step_states`` those of its ranks beside its layers'.
    """
    activation_tier_bytes = [
        _sum(entry.lowered.tier_bytes for entry in chunk.layers) for chunk in chunks
    ]
    units = (entry.unit for chunk in chunks for entry in chunk.layers if entry.unit is not None)
    states = [*step_states, *(state for unit in units for state in unit.added_tier_bytes)]
    rows = []
    for tier in TIERS:
        chunk_bytes = [total_bytes(size, tier) for size in activation_tier_bytes]
        resident = [state for state in states if state.tier == tier]
        if total_bytes(resident, tier) or any(chunk_bytes):
            rows.append(_row(plan, rank_location, tier, resident, _in_flight(passes, chunk_bytes)))
    return tuple(rows)


def _sum(sizes: Iterable[TierBytes]) -> TierBytes:
    return tuple(pair for size in sizes for pair in size)


def _in_flight(passes: StagePasses, chunk_bytes: list[int]) -> int:
    signs = [1 if k.forward else 0 if k.part == "weight" else -1 for k in passes.kinds]
    change = [sign * chunk_bytes[k.chunk] for sign, k in zip(signs, passes.kinds, strict=True)]
    moments = np.cumsum(np.array(change, dtype=np.int64)[passes.rows])
    return max(0, int(moments.max()))


def _row(
    plan: Plan,
    rank_location: tuple[int, str],
    tier: Tier,
    resident: list[StateBytes],
    in_flight: int,
) -> MemoryRow:
    stage, name = rank_location
    memory = plan.cluster.group(name).memory
    capacity = memory.host_bytes if tier == "host" else memory.nvme_bytes
    by = {**dict.fromkeys(MEMORY_TERMS, 0), "activations": in_flight}
    for state in resident:
        by[state.term] += state.size_bytes
    held_bytes = sum(by.values())
    return MemoryRow(
        program=plan.program.name,
        stage=stage,
        device_group=name,
        tier=tier,
        allocated_bytes=held_bytes,
        reserved_bytes=held_bytes,
        capacity_bytes=capacity or 0,
        by=by,
    )
