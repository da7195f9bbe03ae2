"""Offsets of requests in one arena, and gaps between those that live at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...spec.report.allocation_trace import Request

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """An offset for each request.

    ``by``: the algorithm that found it.
    """

    offsets: tuple[int, ...]
    arena_bytes: int
    by: str


def placement(requests: Sequence[Request], offsets: Sequence[int], by: str) -> Placement:
    """The placement of given offsets."""
    tops = (offset + r.bytes for r, offset in zip(requests, offsets, strict=True))
    return Placement(offsets=tuple(offsets), arena_bytes=max(tops, default=0), by=by)


def overlapping_pair(requests: Sequence[Request], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Two requests that share a byte while both live; None if there are none."""
    order = sorted(range(len(requests)), key=lambda n: requests[n].birth)
    alive: list[int] = []
    for n in order:
        now = requests[n]
        alive = [other for other in alive if requests[other].death > now.birth]
        for other in alive:
            below = offsets[other] + requests[other].bytes <= offsets[n]
            if not below and offsets[n] + now.bytes > offsets[other]:
                return other, n
        if now.death > now.birth:
            alive.append(n)
    return None


class PlacedRequests:
    """Requests placed so far, with the gaps that they leave to another."""

    def __init__(self, requests: Sequence[Request]) -> None:
        count = len(requests)
        self._births = np.array([r.birth for r in requests], dtype=np.int64)
        self._deaths = np.array([r.death for r in requests], dtype=np.int64)
        self._sizes = [r.bytes for r in requests]
        self._placed = np.zeros((4, count), dtype=np.int64)  # births, deaths, offsets, ends
        self._count = 0

    def place(self, number: int) -> int:
        """Place a request at the lowest offset where nothing else lives; return it."""
        size = self._sizes[number]
        births, deaths, offsets, ends = self._placed[:, : self._count]
        birth, death = self._births[number], self._deaths[number]
        beside = np.flatnonzero((births < death) & (deaths > birth))
        offset = _lowest_gap(offsets[beside], ends[beside], size)
        self._placed[:, self._count] = birth, death, offset, offset + size
        self._count += 1
        return offset


def _lowest_gap(offsets: Ints, ends: Ints, size: int) -> int:
    """The lowest offset of ``size`` free bytes between blocks."""
    if not len(offsets):
        return 0
    order = np.argsort(offsets, kind="stable")
    starts, tops = offsets[order], np.maximum.accumulate(ends[order])
    if starts[0] >= size:
        return 0
    fits = np.flatnonzero(starts[1:] - tops[:-1] >= size)
    return int(tops[fits[0]] if len(fits) else tops[-1])
