"""Who writes what of a save: replicated slices shared out among the ranks that hold them.

Worst fit (ByteCheckpoint, NSDI 2025, section 4.1, extended to tensors that are whole on every
rank): what one rank alone holds is its own; the rest, largest first, goes to the holder with the
fewest bytes so far. A replicated slice that is large is cut by rows before, so that the fullest
rank has little more than the mean. Every rank computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .tensor_slices import SliceRecord, dtype_of

PIECES_PER_RANK = 32
"""Replicated pieces are at most this part of what a rank writes on average."""
LEAST_PIECE_BYTES = 1 << 16
Box = tuple[str, tuple[int, ...], tuple[int, ...]]
"""Name, offsets, sizes."""


def share_out(records: Sequence[Sequence[SliceRecord]]) -> list[list[SliceRecord]]:
    """Records that each rank writes: every box once, those of several ranks balanced."""
    holders: dict[Box, list[int]] = {}
    rows: dict[Box, SliceRecord] = {}
    for rank, held in enumerate(records):
        for row in held:
            box = (row[0], tuple(row[3]), tuple(row[4]))
            holders.setdefault(box, []).append(rank)
            rows[box] = row
    chosen: list[list[SliceRecord]] = [[] for _ in records]
    load = [0] * len(records)
    limit = max(LEAST_PIECE_BYTES, sum(map(_bytes, rows.values())) // _pieces(len(records)))
    shared: list[tuple[SliceRecord, list[int]]] = []
    for box, row in rows.items():
        if len(holders[box]) > 1:
            shared += [(piece, holders[box]) for piece in _cut(row, limit, len(holders[box]))]
            continue
        (rank,) = holders[box]
        chosen[rank].append(row)
        load[rank] += _bytes(row)
    for row, ranks in sorted(shared, key=lambda item: (-_bytes(item[0]), item[0][0], item[0][3])):
        rank = min(ranks, key=lambda number: (load[number], number))
        chosen[rank].append(row)
        load[rank] += _bytes(row)
    return chosen


def _pieces(ranks: int) -> int:
    return PIECES_PER_RANK * ranks


def _bytes(row: SliceRecord) -> int:
    return math.prod(row[4]) * dtype_of(row[1]).itemsize


def _cut(row: SliceRecord, limit_bytes: int, most: int) -> Iterator[SliceRecord]:
    """A box in at most ``most`` runs of rows, none of them empty."""
    name, dtype, whole, offsets, shape = row
    rows = shape[0] if shape else 1
    count = min(most, rows, math.ceil(_bytes(row) / limit_bytes))
    if count < 2:
        yield row
        return
    edges = [rows * number // count for number in range(count + 1)]
    for first, last in pairwise(edges):
        yield name, dtype, whole, [offsets[0] + first, *offsets[1:]], [last - first, *shape[1:]]
