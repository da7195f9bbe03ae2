"""Bytes that torch's caching allocator reserves for a step's requests, by its rules.

Rules of ``c10/cuda/CUDACachingAllocator``, without expandable segments: sizes are rounded up to
512 bytes; up to 1 MiB they come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, and
larger ones have segments of their own, in multiples of 2 MiB. The smallest free block that holds a
request is taken, and split if enough is left; freed neighbors are joined. Nothing is given back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from ...spec.report.allocation_trace import Request

MIB = 2**20
ROUNDING = 512
SMALL, SMALL_SEGMENT = MIB, 2 * MIB
MIDDLE, MIDDLE_SEGMENT = 10 * MIB, 20 * MIB
SEGMENT_ROUNDING = 2 * MIB


class _Pool:
    """Free blocks of one kind of segment."""

    def __init__(self, least_left: int) -> None:
        self._least_left = least_left
        self._free: list[tuple[int, int]] = []  # size, address
        self._by_address: dict[int, int] = {}
        self._by_end: dict[int, int] = {}

    def take(self, size: int) -> tuple[int, int] | None:
        """Address and bytes of the block for a request; None if no block holds it."""
        place = bisect_left(self._free, (size, 0))
        if place == len(self._free):
            return None
        found, address = self._free[place]
        self._remove(address, found)
        if found - size >= self._least_left:
            self._add(address + size, found - size)
            return address, size
        return address, found

    def give(self, address: int, size: int) -> None:
        """Free a block and join it with its free neighbors."""
        if (after := self._by_address.get(address + size)) is not None:
            self._remove(address + size, after)
            size += after
        if (before := self._by_end.get(address)) is not None:
            self._remove(address - before, before)
            address, size = address - before, size + before
        self._add(address, size)

    def _add(self, address: int, size: int) -> None:
        insort(self._free, (size, address))
        self._by_address[address] = size
        self._by_end[address + size] = size

    def _remove(self, address: int, size: int) -> None:
        del self._free[bisect_left(self._free, (size, address))]
        del self._by_address[address], self._by_end[address + size]


def caching_allocator_bytes(requests: Sequence[Request]) -> int:
    """Bytes of all segments after a step's requests."""
    small, large = _Pool(ROUNDING), _Pool(SMALL + 1)
    deaths: list[tuple[int, int]] = []
    blocks: dict[int, tuple[_Pool, int, int]] = {}
    reserved = 0
    for number in sorted(range(len(requests)), key=lambda n: (requests[n].birth, n)):
        request = requests[number]
        while deaths and deaths[0][0] <= request.birth:
            pool, address, size = blocks.pop(deaths.pop(0)[1])
            pool.give(address, size)
        size = max(ROUNDING, -(-request.bytes // ROUNDING) * ROUNDING)
        pool = small if size <= SMALL else large
        found = pool.take(size)
        if found is None:
            segment = _segment_bytes(size)
            pool.give(2 * reserved + 1, segment)  # no two segments are neighbors
            reserved += segment
            found = pool.take(size)
        if found is None:
            raise RuntimeError("a segment does not hold what it was made for")
        blocks[number] = (pool, *found)
        insort(deaths, (request.death, number))
    return reserved


def _segment_bytes(size: int) -> int:
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < MIDDLE:
        return MIDDLE_SEGMENT
    return -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
