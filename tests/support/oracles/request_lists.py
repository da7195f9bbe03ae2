"""Allocation requests for tests: random ones, some that greedy placement fails, made steps."""

from __future__ import annotations

import random

from shardwright.spec.report.allocation_trace import AllocationTrace, Request

GREEDY_FAILS = (0, 5, 6, 8, 9)
"""Seeds of :func:`random_requests` whose placement by size is more than 4 % above live bytes."""


def random_requests(seed: int, most: int = 60) -> tuple[Request, ...]:
    """Up to ``most`` requests of up to 12 events each."""
    rng = random.Random(seed)
    count = rng.choice([n for n in (20, 40, 60) if n <= most] or [most])
    requests = []
    for _ in range(count):
        birth = rng.randrange(count)
        death = birth + 1 + rng.randrange(12)
        requests.append(Request(rng.randrange(1, 64) * 512, birth, death))
    return tuple(sorted(requests, key=lambda request: request.birth))


def layered_step(seed: int, layers: int = 6) -> AllocationTrace:
    """A step of equal layers: saved tensors from forward to backward, others within a section."""
    rng = random.Random(seed)
    saved = [rng.randrange(1, 64) * 64 for _ in range(4)]
    inner = [
        (rng.randrange(1, 96) * 64, first, first + 1 + rng.randrange(4)) for first in range(12)
    ]
    events = 20
    found: list[Request] = []
    sections = [n * events for n in range(2 * layers + 1)]
    for section in sections[:-1]:
        layer = section // events
        if layer < layers:
            back = (2 * layers - 1 - layer) * events + events - 1
            found += [Request(size, section + n, back) for n, size in enumerate(saved)]
        found += [Request(size, section + 1 + a, section + 1 + b) for size, a, b in inner]
    found.sort(key=lambda request: request.birth)
    return AllocationTrace(requests=tuple(found), passes=(0, layers), sections=tuple(sections))
