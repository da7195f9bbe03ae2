"""Memory outside the device: what techniques hold of a stage on host or drive.

Bytes that a micro-batch keeps there come with its forward and go with its backward, in the order
of the stage's schedule; those of states are there all along.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...spec.plan.plan import Plan
from ...spec.report.report import MEMORY_TERMS, MemoryRow
from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import StagePasses
from ..symbolic.tier_bytes import TIERS, Tier, TierBytes, total_bytes


def tier_rows(
    plan: Plan, place: tuple[int, str], passes: StagePasses, chunks: tuple[StageChunk, ...]
) -> tuple[MemoryRow, ...]:
    """Peak bytes of the tiers beyond the device's own that a rank uses; none where it uses none.

    A tier that the cluster does not have has no capacity.

    Args:
        plan: the plan.
        place: stage and device group.
        passes: the stage's passes in order.
        chunks: the stage's lowered chunks.
    """
    kept = [_sum(entry.lowered.tier_bytes for entry in chunk.layers) for chunk in chunks]
    states = _sum(e.unit.added_tier_bytes for c in chunks for e in c.layers if e.unit is not None)
    found = []
    for tier in TIERS:
        each = [total_bytes(size, tier) for size in kept]
        held = total_bytes(states, tier)
        if held or any(each):
            found.append(_row(plan, place, tier, held, _in_flight(passes, each)))
    return tuple(found)


def _sum(sizes: Iterable[TierBytes]) -> TierBytes:
    return tuple(pair for size in sizes for pair in size)


def _in_flight(passes: StagePasses, kept: list[int]) -> int:
    """The most bytes that micro-batches in flight keep at once."""
    signs = [1 if k.forward else 0 if k.part == "weight" else -1 for k in passes.kinds]
    change = [sign * kept[k.chunk] for sign, k in zip(signs, passes.kinds, strict=True)]
    moments = np.cumsum(np.array(change, dtype=np.int64)[passes.rows])
    return max(0, int(moments.max()))


def _row(plan: Plan, place: tuple[int, str], tier: Tier, held: int, in_flight: int) -> MemoryRow:
    stage, name = place
    memory = plan.cluster.group(name).memory
    given = memory.host_bytes if tier == "host" else memory.nvme_bytes
    by = {**dict.fromkeys(MEMORY_TERMS, 0), "activations": in_flight, "workspace": held}
    return MemoryRow(
        program=plan.program.name,
        stage=stage,
        device_group=name,
        tier=tier,
        allocated_bytes=held + in_flight,
        reserved_bytes=held + in_flight,
        capacity_bytes=given or 0,
        by=by,
    )
