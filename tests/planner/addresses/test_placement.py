"""Placement of requests: no two live ones over each other, in little more than live bytes."""

from __future__ import annotations

from itertools import permutations

import pytest
from oracles.request_lists import GREEDY_FAILS, layered_step, random_requests

from shardwright.planner.addresses.bi_level import bi_level
from shardwright.planner.addresses.caching_allocator import MIB, caching_allocator_bytes
from shardwright.planner.addresses.heuristics import (
    ORDERS,
    best_fit,
    first_fit,
    greedy,
    local_search,
)
from shardwright.planner.addresses.mip import solve_mip
from shardwright.planner.addresses.placement import (
    PlacedRequests,
    overlapping_pair,
    placement,
)
from shardwright.planner.addresses.solve import AddressSolution, solve_addresses, solve_flat
from shardwright.spec.report.allocation_trace import AllocationTrace, Request, most_live_bytes

MOST = 1.02
BI_LEVEL_MOST = 1.05


def slow_pair(requests: tuple[Request, ...], offsets: tuple[int, ...]) -> bool:
    """Whether any two live requests share a byte, pair by pair."""
    return any(
        a.birth < b.death
        and b.birth < a.death
        and offsets[i] < offsets[j] + b.bytes
        and offsets[j] < offsets[i] + a.bytes
        for i, a in enumerate(requests)
        for j, b in enumerate(requests)
        if i < j
    )


@pytest.mark.parametrize("seed", range(8))
def test_no_two_live_requests_overlap(seed: int) -> None:
    requests = random_requests(seed)
    least = most_live_bytes(requests)
    online = [first_fit(requests), best_fit(requests)]
    found = [*online, *(greedy(requests, name) for name in ORDERS)]
    found += [local_search(requests, least), solve_flat(requests)]
    for place in found:
        assert overlapping_pair(requests, place.offsets) is None
        assert not slow_pair(requests, place.offsets)
        assert place.arena_bytes >= least
    best = found[-1].arena_bytes
    assert best <= MOST * least
    assert best <= min(p.arena_bytes for p in found)
    assert best <= caching_allocator_bytes(requests)


def test_overlaps_are_found() -> None:
    requests = (Request(4, 0, 2), Request(4, 1, 3), Request(4, 2, 4))
    assert overlapping_pair(requests, (0, 3, 0)) == (0, 1)
    assert overlapping_pair(requests, (0, 4, 0)) is None
    assert slow_pair(requests, (0, 3, 0))


def test_greedy_fails_where_the_search_does_not() -> None:
    for seed in GREEDY_FAILS:
        requests = random_requests(seed)
        least = most_live_bytes(requests)
        assert greedy(requests).arena_bytes > MOST * least
        assert solve_flat(requests).arena_bytes <= MOST * least


def smallest(requests: tuple[Request, ...]) -> int:
    """The smallest arena, by the lowest placement in every order."""
    best = sum(request.bytes for request in requests)
    for order in permutations(range(len(requests))):
        placed, offsets = PlacedRequests(requests), [0] * len(requests)
        for number in order:
            offsets[number] = placed.place(number)
        best = min(best, placement(requests, offsets, "").arena_bytes)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_the_integer_program_finds_the_smallest_arena(seed: int) -> None:
    requests = tuple(
        Request(r.bytes, r.birth // 3, r.birth // 3 + 1 + n % 3)
        for n, r in enumerate(random_requests(seed)[:6])
    )
    stacked, offset = [], 0
    for request in requests:
        stacked.append(offset)
        offset += request.bytes
    known = placement(requests, stacked, "one above another")
    found = solve_mip(requests, known) or known
    assert overlapping_pair(requests, found.offsets) is None
    assert found.arena_bytes == smallest(requests)


@pytest.mark.parametrize("seed", [0, 1])
def test_sections_are_placed_as_blocks(seed: int) -> None:
    trace = layered_step(seed)
    by_sections = bi_level(trace, solve_flat, solve_flat)
    assert overlapping_pair(trace.requests, by_sections.offsets) is None
    flat = solve_flat(trace.requests)
    assert by_sections.arena_bytes <= BI_LEVEL_MOST * flat.arena_bytes
    offsets = dict(zip(trace.requests, by_sections.offsets, strict=True))
    first, second = (
        [(r.bytes, offsets[r]) for r in trace.requests if r.death <= end and r.birth >= end - 20]
        for end in (20, 40)
    )
    base = second[0][1] - first[0][1]
    assert [(size, offset + base) for size, offset in first] == second


def test_a_solution_is_the_same_each_time() -> None:
    trace = layered_step(1)
    first, second = solve_addresses(trace), solve_addresses(trace)
    assert first == second
    assert AddressSolution.from_document(first.to_document()) == first
    assert first.live_bytes == most_live_bytes(trace.requests)
    again = AllocationTrace.from_document(trace.to_document())
    assert again == trace
    assert again.placed(512).requests[0].bytes % 512 == 0


def test_rules_of_the_caching_allocator() -> None:
    """Small requests share 2 MiB, middle ones 20 MiB; large ones have their own, rounded."""
    assert caching_allocator_bytes([Request(1, 0, 1)]) == 2 * MIB
    assert caching_allocator_bytes([Request(1, 0, 2), Request(MIB, 1, 2)]) == 2 * MIB
    assert caching_allocator_bytes([Request(MIB + 1, 0, 1)]) == 20 * MIB
    assert caching_allocator_bytes([Request(11 * MIB + 1, 0, 1)]) == 12 * MIB
    freed = [Request(12 * MIB, 0, 1), Request(12 * MIB, 2, 3)]
    assert caching_allocator_bytes(freed) == 12 * MIB
    whole = [Request(12 * MIB, 0, 1), Request(11 * MIB, 2, 9), Request(MIB + 1, 3, 9)]
    assert caching_allocator_bytes(whole) == 32 * MIB  # 1 MiB that is left is not split off
    split = [Request(12 * MIB, 0, 1), Request(10 * MIB, 2, 9), Request(2 * MIB, 3, 9)]
    assert caching_allocator_bytes(split) == 12 * MIB
