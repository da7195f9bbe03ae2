"""Windows of few pieces: greedy starts, improved by moves and swaps.

A piece that no window has room for has -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FEW = 64
"""Pieces up to which several starts are tried, and improved until still."""
ROUNDS_OF_FEW, ROUNDS_OF_MANY = 20, 2
SEEDED_STARTS = 4


def fill_alike(lengths: Array, vectors: Array, size: int, count: int | None = None) -> Array:
    """Window of each piece, alike pieces together, in ``count`` windows of ``size`` tokens.

    ``count``: as many as the tokens need, if None. Of several starts that places most tokens, then
    with the greatest likeness, stays.
    """
    count = count or max(1, -(-int(lengths.sum()) // size))
    starts = [greedy(lengths, vectors, size, count)]
    is_few = len(lengths) <= FEW and count > 1
    if is_few:
        firsts = np.linspace(0, len(lengths), SEEDED_STARTS, endpoint=False).astype(int).tolist()
        starts += [_seeded(lengths, vectors, size, count, first) for first in dict.fromkeys(firsts)]
        starts.append(_fitted(lengths, size, count))
    rounds = ROUNDS_OF_FEW if is_few else ROUNDS_OF_MANY
    found = [improve(start, lengths, vectors, size, rounds) for start in starts]
    return max(found, key=lambda w: (int(lengths[w >= 0].sum()), round(likeness(w, vectors), 9)))


def likeness(windows: Array, vectors: Array) -> float:
    """Sum of the pairs' cosines inside windows; vectors have length 1."""
    placed = np.flatnonzero(windows >= 0)
    if not len(placed):
        return 0.0
    sums = np.zeros((int(windows.max()) + 1, vectors.shape[1]))
    np.add.at(sums, windows[placed], vectors[placed])
    return float((np.sum(sums**2) - np.sum(vectors[placed] ** 2)) / 2)


def _fitted(lengths: Array, size: int, count: int) -> Array:
    """Best fit, longest first."""
    rooms = np.full(count, size, dtype=np.int64)
    windows = np.full(len(lengths), -1, dtype=np.int64)
    for piece in np.argsort(-lengths, kind="stable").tolist():
        left = np.where(rooms >= lengths[piece], rooms, size + 1)
        best = int(left.argmin())
        if left[best] <= size:
            windows[piece] = best
            rooms[best] -= lengths[piece]
    return windows


def _seeded(lengths: Array, vectors: Array, size: int, count: int, first: int) -> Array:
    """Pieces far from each other begin windows; others go where likeness is greatest."""
    seeds = [first]
    nearest = vectors @ vectors[first]
    while len(seeds) < min(count, len(lengths)):
        nearest[seeds] = np.inf
        seeds.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, vectors @ vectors[seeds[-1]])
    rooms = np.full(count, size, dtype=np.int64)
    sums = np.zeros((count, vectors.shape[1]))
    windows = np.full(len(lengths), -1, dtype=np.int64)
    order = [*seeds, *(n for n in np.argsort(-lengths, kind="stable").tolist() if n not in seeds)]
    for place, piece in enumerate(order):
        gain = np.where(rooms >= lengths[piece], sums @ vectors[piece], -np.inf)
        best = place if place < len(seeds) else int(gain.argmax())
        if rooms[best] >= lengths[piece]:
            windows[piece] = best
            rooms[best] -= lengths[piece]
            sums[best] += vectors[piece]
    return windows


def greedy(lengths: Array, vectors: Array, size: int, count: int) -> Array:
    """Windows of the longest pieces first, each where room x likeness is greatest."""
    rooms = np.full(count, size, dtype=np.int64)
    sums = np.zeros((count, vectors.shape[1]))
    norms = np.zeros(count)
    windows = np.full(len(lengths), -1, dtype=np.int64)
    for piece in np.argsort(-lengths, kind="stable").tolist():
        has_room = rooms >= lengths[piece]
        if not has_room.any():
            continue
        likeness = np.where(norms > 0, sums @ vectors[piece] / np.maximum(norms, 1e-12), 1.0)
        gain = np.where(has_room, (1 + likeness) * rooms, -np.inf)
        best = int(gain.argmax())
        windows[piece] = best
        rooms[best] -= lengths[piece]
        sums[best] += vectors[piece]
        norms[best] = np.linalg.norm(sums[best])
    return windows


def improve(windows: Array, lengths: Array, vectors: Array, size: int, rounds: int) -> Array:
    """Windows after moves and swaps of two pieces, each of which raises likeness.

    Likeness of a window is the sum of its pairs' cosines; a piece's is its product with the rest.
    """
    windows = windows.copy()
    placed = np.flatnonzero(windows >= 0)
    if not len(placed):
        return windows
    count = int(windows.max()) + 1
    sums = np.zeros((count, vectors.shape[1]))
    np.add.at(sums, windows[placed], vectors[placed])
    rooms = size - np.bincount(windows[placed], lengths[placed], minlength=count).astype(np.int64)
    for _ in range(rounds):
        changed = False
        for piece in placed.tolist():
            changed |= _improve_one(piece, placed, windows, lengths, vectors, sums, rooms)
        if not changed:
            break
    return windows


def _improve_one(
    piece: int, placed: Array, windows: Array, lengths: Array, vectors: Array, sums: Array,
    rooms: Array,
) -> bool:  # fmt: skip
    mine, vector = int(windows[piece]), vectors[piece]
    pulls = sums @ vector
    here = pulls[mine] - vector @ vector
    moves = np.where(rooms >= lengths[piece], pulls - here, -np.inf)
    moves[mine] = -np.inf
    to = int(moves.argmax())
    others = placed[windows[placed] != mine]
    theirs = windows[others]
    fits = (lengths[others] <= rooms[mine] + lengths[piece]) & (
        lengths[piece] <= rooms[theirs] + lengths[others]
    )
    mate, gain = -1, -np.inf
    if fits.any():
        others, theirs = others[fits], theirs[fits]
        both = vectors[others] @ vector
        own = np.sum(sums[theirs] * vectors[others], axis=1) - np.sum(vectors[others] ** 2, axis=1)
        there = vectors[others] @ sums[mine] - both
        gains = (pulls[theirs] - both) + there - here - own
        best = int(gains.argmax())
        mate, gain = int(others[best]), float(gains[best])
    if max(float(moves[to]), gain) <= 1e-9:
        return False
    if gain > moves[to]:
        other = int(windows[mate])
        _move(mate, mine, windows, lengths, vectors, sums, rooms)
        _move(piece, other, windows, lengths, vectors, sums, rooms)
    else:
        _move(piece, to, windows, lengths, vectors, sums, rooms)
    return True


def _move(
    piece: int, to: int, windows: Array, lengths: Array, vectors: Array, sums: Array, rooms: Array
) -> None:
    source = int(windows[piece])
    sums[source] -= vectors[piece]
    sums[to] += vectors[piece]
    rooms[source] += lengths[piece]
    rooms[to] -= lengths[piece]
    windows[piece] = to
