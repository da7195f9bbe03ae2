"""Heuristics of dynamic storage allocation: greedy by an order, first fit, best fit.

The greedy ones see the whole step and place one request after another, the lowest first where
nothing else lives at that time. First and best fit see requests as they come, as an allocator does.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from random import Random

from ...spec.report.allocation_trace import Request
from .placement import PlacedRequests, Placement, placement

Order = Callable[[Request], tuple[int, ...]]

ORDERS: dict[str, Order] = {
    "greedy by size": lambda r: (-r.bytes, r.birth - r.death, r.birth),
    "greedy by life": lambda r: (r.birth - r.death, -r.bytes, r.birth),
    "greedy by area": lambda r: (-r.bytes * (r.death - r.birth), -r.bytes, r.birth),
}
"""Orders of greedy placement, by name."""

PLACEMENTS = 60_000
"""Single placements of :func:`local_search` at most, over all orders that it tries."""
SEED = 0
PEAK_SHARE = 0.6
"""Share of changes that move a request of the peak."""


def greedy(requests: Sequence[Request], name: str = "greedy by size") -> Placement:
    """Place requests in an order of ``ORDERS``, each at its lowest free offset."""
    order = sorted(range(len(requests)), key=lambda n: (*ORDERS[name](requests[n]), n))
    return _in_order(requests, order, name)


def _in_order(requests: Sequence[Request], order: Sequence[int], name: str) -> Placement:
    placed, offsets = PlacedRequests(requests), [0] * len(requests)
    for number in order:
        offsets[number] = placed.place(number)
    return placement(requests, offsets, name)


def local_search(requests: Sequence[Request], target: int, most: int = PLACEMENTS) -> Placement:
    """The best greedy placement over changed orders, from that by size.

    Each change moves a request that ends at the peak before one that lies below it, or swaps two;
    it stays unless the arena grows. Ends at ``target`` bytes, or after ``most`` placements; the
    random numbers are the same in every call.
    """
    rng = Random(SEED)
    order = sorted(range(len(requests)), key=lambda n: (*ORDERS["greedy by size"](requests[n]), n))
    best = current = _in_order(requests, order, "local search")
    for _ in range(most // max(1, len(requests))):
        if best.arena_bytes <= target:
            break
        changed = _changed(requests, current, order, rng)
        found = _in_order(requests, changed, "local search")
        if found.arena_bytes <= current.arena_bytes:
            current, order = found, changed
        if found.arena_bytes < best.arena_bytes:
            best = found
    return best


def _changed(
    requests: Sequence[Request], found: Placement, order: list[int], rng: Random
) -> list[int]:
    """An order with one request placed earlier, or two swapped."""
    changed = list(order)
    tops = [found.offsets[n] + requests[n].bytes for n in order]
    peaks = [place for place, top in enumerate(tops) if top == found.arena_bytes]
    place = rng.choice(peaks)
    if place and rng.random() < PEAK_SHARE:
        changed.insert(rng.randrange(place), changed.pop(place))
    else:
        first, second = rng.randrange(len(order)), rng.randrange(len(order))
        changed[first], changed[second] = changed[second], changed[first]
    return changed


def first_fit(requests: Sequence[Request]) -> Placement:
    """Each request, as it comes, at the lowest free offset."""
    return _online(requests, "first fit", lambda gaps: gaps[0])


def best_fit(requests: Sequence[Request]) -> Placement:
    """Each request, as it comes, in the smallest gap that holds it."""
    return _online(requests, "best fit", lambda gaps: min(gaps, key=lambda gap: (gap[1], gap[0])))


def _online(
    requests: Sequence[Request],
    name: str,
    choose: Callable[[list[tuple[int, int]]], tuple[int, int]],
) -> Placement:
    live: list[tuple[int, int]] = []  # offset, end
    deaths: list[tuple[int, int, int]] = []
    offsets = [0] * len(requests)
    for number in sorted(range(len(requests)), key=lambda n: (requests[n].birth, n)):
        request = requests[number]
        while deaths and deaths[0][0] <= request.birth:
            _, *block = deaths.pop(0)
            del live[bisect_left(live, (block[0], block[1]))]
        gaps, end = [], 0
        for offset, top in live:
            if offset - end >= request.bytes:
                gaps.append((end, offset - end))
            end = max(end, top)
        offset = (choose(gaps) if gaps else (end, 0))[0]
        offsets[number] = offset
        if request.death > request.birth and request.bytes:
            insort(live, (offset, offset + request.bytes))
            insort(deaths, (request.death, offset, offset + request.bytes))
    return placement(requests, offsets, name)
