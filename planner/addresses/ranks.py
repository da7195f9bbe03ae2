"""Addresses of all ranks of a plan, from their allocation traces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ...spec.report.allocation_trace import AllocationTrace
from ...spec.report.planned_addresses import PlannedAddresses, RankAddresses, different_ones
from .solve import solve_addresses

ALIGNMENT = 64
"""Bytes of torch's alignment on cores, to which offsets are multiples."""
OWN = -1
"""In place of an offset: the request is left to torch's own allocator."""


def rank_addresses(trace: AllocationTrace) -> RankAddresses:
    """Addresses of a rank's step."""
    solution = solve_addresses(trace.placed(ALIGNMENT))
    offsets = iter(solution.offsets)
    count = range(len(trace.requests))
    births = [request.birth for request in trace.requests]
    return RankAddresses(
        passes=trace.passes,
        sections=trace.section_starts(),
        sizes=tuple(request.bytes for request in trace.requests),
        offsets=tuple(OWN if n in trace.lasting else next(offsets) for n in count),
        untils=tuple(bisect_left(births, request.death) for request in trace.requests),
        arena_bytes=solution.arena_bytes,
        live_bytes=solution.live_bytes,
        by=solution.by,
    )


def planned_addresses(plan_hash: str, traces: Sequence[AllocationTrace]) -> PlannedAddresses:
    """Addresses of every rank, of which equal traces are solved once."""
    different, numbers = different_ones(traces)
    return PlannedAddresses(
        plan_hash=plan_hash,
        different=tuple(map(rank_addresses, different)),
        of_rank=tuple(numbers),
    )
