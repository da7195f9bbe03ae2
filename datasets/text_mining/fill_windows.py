"""Filling of windows: end to end, by best fit, and by room and likeness."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, NamedTuple

import numpy as np

from .window_search import fill_alike

Array = np.ndarray[Any, Any]
MOST_WINDOWS = 48
"""Windows of a part of a cluster that are filled together: time stays linear in documents."""
FULL = 0.95
"""Share of a window below which what it holds is spread over others."""


class Pieces(NamedTuple):
    """Parts of documents, each within a window: (pieces,) each."""

    documents: Array
    starts: Array
    lengths: Array


def cut_long(lengths: Array, size: int) -> Pieces:
    """Documents, those longer than a window cut at it."""
    counts = np.maximum(1, -(-lengths // size))
    documents = np.repeat(np.arange(len(lengths)), counts)
    firsts = np.cumsum(counts) - counts
    starts = (np.arange(len(documents)) - firsts[documents]) * size
    return Pieces(documents, starts, np.minimum(size, lengths[documents] - starts))


def fill_in_order(lengths: Array, order: Array, size: int) -> tuple[Pieces, Array]:
    """Documents end to end, cut wherever a window ends."""
    documents, starts, parts, windows = [], [], [], []
    place = 0
    for document in order.tolist():
        start, left = 0, int(lengths[document])
        while left:
            part = min(left, size - place % size)
            documents.append(document)
            starts.append(start)
            parts.append(part)
            windows.append(place // size)
            place, start, left = place + part, start + part, left - part
    return (
        Pieces(*(np.array(each, dtype=np.int64) for each in (documents, starts, parts))),
        np.array(windows, dtype=np.int64),
    )


def fill_best(lengths: Array, size: int, rooms: Array | None = None) -> Array:
    """Window of each piece: the fullest with room, longest pieces first, new ones as needed.

    ``rooms``: of windows that are there already, which keep their numbers.
    """
    windows = np.zeros(len(lengths), dtype=np.int64)
    used = [] if rooms is None else sorted((int(r), n) for n, r in enumerate(rooms.tolist()) if r)
    count = 0 if rooms is None else len(rooms)
    for piece in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[piece])
        place = bisect_left(used, (length, -1))
        if place < len(used):
            room, window = used.pop(place)
        else:
            room, window = size, count
            count += 1
        windows[piece] = window
        if room > length:
            insort(used, (room - length, window))
    return windows


def fill_by_likeness(lengths: Array, vectors: Array, labels: Array, size: int) -> Array:
    """Window of each piece: in its cluster that of the greatest room x likeness.

    Windows that stay far from full are emptied, and their pieces go where they fit best.
    """
    windows = np.full(len(lengths), -1, dtype=np.int64)
    rooms: list[int] = []
    for part in _parts(lengths, vectors, labels, size):
        found = fill_alike(lengths[part], vectors[part], size)
        for window in np.unique(found[found >= 0]).tolist():
            members = part[found == window]
            windows[members] = len(rooms)
            rooms.append(size - int(lengths[members].sum()))
    room = np.array(rooms, dtype=np.int64)
    far = np.flatnonzero(room > (1 - FULL) * size)
    loose = (windows < 0) | np.isin(windows, far)
    left = np.setdiff1d(np.arange(len(room)), far)
    windows[~loose] = np.searchsorted(left, windows[~loose])
    windows[loose] = _refill(lengths[loose], windows[loose], room, far, left, size)
    return np.unique(windows, return_inverse=True)[1]


def _refill(lengths: Array, old: Array, room: Array, far: Array, left: Array, size: int) -> Array:
    """Windows of loose pieces; the fullest of the emptied windows stay together where they can."""
    keep = far[np.argsort(room[far], kind="stable")]
    for count in range(len(keep), -1, -max(1, len(keep) // 8)):
        stay = keep[:count]
        rooms = np.concatenate((room[left], room[stay]))
        is_loose = ~np.isin(old, stay)
        found = np.zeros(len(lengths), dtype=np.int64)
        for place, window in enumerate(stay.tolist()):
            found[old == window] = len(left) + place
        found[is_loose] = fill_best(lengths[is_loose], size, rooms)
        filled = len(np.unique(np.concatenate((np.arange(len(rooms)), found))))
        total = int((size - room[left]).sum()) + int(lengths.sum())
        if count == 0 or filled * size - total <= (1 - FULL) / 2 * filled * size + size:
            break
    return found


def _parts(lengths: Array, vectors: Array, labels: Array, size: int) -> list[Array]:
    """Clusters, those of many windows split at the median of their widest direction."""
    pending = [np.flatnonzero(labels == label) for label in np.unique(labels).tolist()]
    pending.reverse()
    parts = []
    while pending:
        part = pending.pop()
        if int(lengths[part].sum()) <= MOST_WINDOWS * size or len(part) < 2:
            parts.append(part)
            continue
        place = _along(vectors[part])
        order = part[np.argsort(place, kind="stable")]
        half = len(order) // 2
        pending += [np.sort(order[half:]), np.sort(order[:half])]
    return parts


def _along(vectors: Array) -> Array:
    """Coordinates along the widest direction, by power iteration from a fixed start."""
    centered = vectors - vectors.mean(axis=0)
    direction = np.ones(vectors.shape[1]) / np.sqrt(vectors.shape[1])
    for _ in range(8):
        direction = centered.T @ (centered @ direction)
        norm = float(np.linalg.norm(direction))
        if norm == 0.0:
            break
        direction = direction / norm
    along: Array = centered @ direction
    return along
