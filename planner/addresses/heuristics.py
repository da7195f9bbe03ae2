"""Heuristics of dynamic storage allocation: greedy by an order, first fit, best fit.

The greedy ones see the whole step and place one request after another, the lowest first where
nothing else lives at that time. First and best fit see requests as they come, as an allocator does.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from ...spec.report.allocation_trace import Request, live_bytes
from .placement import PlacedRequests, Placement, placement

Order = Callable[[Request, int], tuple[int, ...]]

CROWDS = 16
COARSE = 4
"""Into how many parts the live bytes at a request's fullest moment are sorted, and coarsely."""

ORDERS: dict[str, Order] = {
    "greedy by size": lambda r, crowd: (-r.bytes, -_life(r)),
    "greedy by life": lambda r, crowd: (-_life(r), -r.bytes),
    "greedy by area": lambda r, crowd: (-r.bytes * _life(r), -r.bytes),
    "greedy by crowd": lambda r, crowd: (-crowd, -_life(r), -r.bytes),
    "greedy by coarse crowd": lambda r, crowd: (-(crowd // COARSE), -_life(r), -r.bytes),
    "greedy by rough life": lambda r, crowd: (-_life(r).bit_length(), -r.bytes),
    "greedy by rough size": lambda r, crowd: (-r.bytes.bit_length(), -_life(r)),
}
"""Orders of greedy placement, by name.

Crowd: the most bytes that live with a request, as a part of the most in the step. Steps of few
layers and large gathers are placed best from their fullest moments on.
"""

PLACEMENTS = 40_000
"""Single placements of :func:`local_search` at most, over all orders that it tries."""
SEED = 0
PEAK_SHARE = 0.6
"""Share of changes that move a request of the peak."""


def greedy(requests: Sequence[Request], name: str = "greedy by size") -> Placement:
    """Place requests in an order of ``ORDERS``, each at its lowest free offset."""
    return _in_order(requests, ordered(requests, name), name)


def ordered(requests: Sequence[Request], name: str) -> list[int]:
    """Numbers of requests in an order of ``ORDERS``."""
    key, crowds = ORDERS[name], _crowds(requests)
    births = [request.birth for request in requests]
    numbers = range(len(requests))
    return sorted(numbers, key=lambda n: (*key(requests[n], crowds[n]), births[n], n))


def _life(request: Request) -> int:
    return request.death - request.birth


def _crowds(requests: Sequence[Request]) -> list[int]:
    """The fullest moment of each request, in parts of that of all."""
    live = np.array(live_bytes(requests), dtype=np.int64)
    most = int(live.max()) if len(live) else 0
    if not most:
        return [0] * len(requests)
    fullest = (int(live[r.birth : max(r.death, r.birth + 1)].max()) for r in requests)
    return [moment * CROWDS // most for moment in fullest]


def _in_order(requests: Sequence[Request], order: Sequence[int], name: str) -> Placement:
    placed, offsets = PlacedRequests(requests), [0] * len(requests)
    for number in order:
        offsets[number] = placed.place(number)
    return placement(requests, offsets, name)


def local_search(requests: Sequence[Request], target: int, most: int = PLACEMENTS) -> Placement:
    """The best greedy placement over changed orders, from the best of ``ORDERS``.

    Each change moves a request that ends at the peak before one that lies below it, or swaps two;
    it stays unless the arena grows. Ends at ``target`` bytes, or after ``most`` placements; the
    random numbers are the same in every call.
    """
    rng = Random(SEED)
    orders = [ordered(requests, name) for name in ORDERS]
    starts = [_in_order(requests, order, "local search") for order in orders]
    best = current = min(starts, key=lambda found: found.arena_bytes)
    order = orders[starts.index(best)]
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
