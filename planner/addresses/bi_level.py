"""Bi-level placement: layers' passes first, then the step with each of them as one block.

What is born and dies within one section, a layer's forward or backward, is placed there, in groups
that overlap in time. Groups with equal requests, as those of equal layers, are solved once. In the
step each is one block of that size, beside the requests that outlive their sections.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from ...spec.report.allocation_trace import AllocationTrace, Request
from .placement import Placement, placement

Solver = Callable[[Sequence[Request]], Placement]


def bi_level(trace: AllocationTrace, inner: Solver, outer: Solver) -> Placement:
    """Place a step by its sections.

    Args:
        trace: the step.
        inner: places the requests of a group.
        outer: places groups and what outlives their sections.
    """
    requests = trace.requests
    members = _members(trace)
    inside = {n for numbers in members for n in numbers}
    lasting = [n for n in range(len(requests)) if n not in inside]
    known: dict[tuple[Request, ...], Placement] = {}
    inner_of: list[Placement] = []
    blocks: list[Request] = []
    for numbers in members:
        own = _relative([requests[n] for n in numbers])
        if own not in known:
            known[own] = inner(own)
        inner_of.append(known[own])
        first = min(requests[n].birth for n in numbers)
        last = max(requests[n].death for n in numbers)
        blocks.append(Request(known[own].arena_bytes, first, last))
    step = outer([*blocks, *(requests[n] for n in lasting)])
    offsets = [0] * len(requests)
    for numbers, found, base in zip(members, inner_of, step.offsets, strict=False):
        for n, offset in zip(numbers, found.offsets, strict=True):
            offsets[n] = base + offset
    for n, offset in zip(lasting, step.offsets[len(blocks) :], strict=True):
        offsets[n] = offset
    return placement(requests, offsets, "bi-level")


def _members(trace: AllocationTrace) -> list[list[int]]:
    """Numbers of the requests that live within a section, in groups that overlap in time."""
    groups: list[list[int]] = []
    section, until = -1, 0
    for number, request in enumerate(trace.requests):
        own = bisect_right(trace.sections, request.birth)
        if not 0 < own < len(trace.sections) or request.death > trace.sections[own]:
            continue
        if own != section or request.birth >= until:
            groups.append([])
            section, until = own, 0
        groups[-1].append(number)
        until = max(until, request.death)
    return groups


def _relative(requests: Sequence[Request]) -> tuple[Request, ...]:
    """Requests on a clock of their own, which has their births and deaths alone."""
    events = sorted({time for r in requests for time in (r.birth, r.death)})
    clock = {time: number for number, time in enumerate(events)}
    return tuple(Request(r.bytes, clock[r.birth], clock[r.death]) for r in requests)
