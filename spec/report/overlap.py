"""Exposed and overlapped parts of communication, for timelines.

``exposed_dp`` is the term of traffic that holds up its rank, ``overlapped_dp`` of that which other
work hides. A piece of traffic is cut where it changes from one to the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

EXPOSED, OVERLAPPED = "exposed_", "overlapped_"
SLIVER = 1e-9
"""Parts below this share of a piece are rounding."""
TRAFFIC = ("dp", "tp", "cp", "ep", "pp")
"""Traffic with exposed terms; a technique's has its name."""
Interval = tuple[float, float]


def overlapped_term(term: str) -> str:
    """The term of traffic that hides, for that of traffic that shows."""
    return OVERLAPPED + term.removeprefix(EXPOSED)


def exposed_term(term: str) -> str:
    """The inverse of :func:`overlapped_term`; other terms stay, as a technique's does."""
    name = term.removeprefix(OVERLAPPED)
    return EXPOSED + name if term.startswith(OVERLAPPED) and name in TRAFFIC else name


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as disjoint intervals, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def cut(piece: Interval, busy: Sequence[Interval]) -> list[tuple[float, float, bool]]:
    """Parts of a piece: start, end, and whether other work overlaps it.

    ``busy``: when that work runs, of :func:`union`.
    """
    start, end = piece
    least = SLIVER * (end - start)
    parts: list[tuple[float, float, bool]] = []

    def add(until: float, overlapped: bool) -> None:
        begin = parts[-1][1] if parts else start
        if until - begin <= least:
            return
        if parts and parts[-1][2] == overlapped:
            begin = parts.pop()[0]
        parts.append((begin, until, overlapped))

    first = bisect_right(busy, (start, start))
    for busy_start, busy_end in busy[max(0, first - 1) :]:
        if busy_start >= end:
            break
        add(min(busy_start, end), False)
        add(min(busy_end, end), True)
    add(end, False)
    if not parts:
        return [(start, end, False)]
    return [*parts[:-1], (parts[-1][0], end, parts[-1][2])]
