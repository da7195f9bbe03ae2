"""Sums of gradients that wait for windows: which piece runs beside which layer of a backward.

Sums wait in line, in the order in which backwards end. A layer with a window takes bytes from its
head while its experts' rows are on their way; where the next layer has none, all that waits is
summed once a unit's gradients join the line. A piece has whole columns: one element of every rank.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...spec.report.work_items import Collective, streamed
from ...spec.workload.number_formats import DTYPE_BYTES
from ..sharding.fsdp_unit import FsdpUnit
from ..symbolic.tape import WorkItem
from .chunk import StageChunk


class PlacedSums(NamedTuple):
    """Sums beside a layer's exchanges, and once its backward is done.

    ``held_bytes``: of buffers that still wait after the layer.
    """

    beside: tuple[WorkItem, ...] = ()
    after: tuple[WorkItem, ...] = ()
    held_bytes: int = 0


class _Waiting:
    """One sum in line, of which columns are taken from the front."""

    def __init__(self, item: Collective) -> None:
        self.item = item
        self.scatters = item.kind == "reduce_scatter"
        self.column = (item.ranks if self.scatters else 1) * DTYPE_BYTES[item.dtype]
        self.left = item.payload_bytes // self.column

    @property
    def held_bytes(self) -> int:
        """Bytes of its buffer; a sum in place has none of its own."""
        return self.item.payload_bytes if self.scatters else 0

    def take(self, limit: int) -> tuple[tuple[WorkItem, ...], int]:
        """Work of its next piece within a limit of bytes, and the bytes."""
        columns = min(self.left, limit // self.column)
        if columns == 0:
            return (), 0
        size = columns * self.column
        piece = self.item._replace(payload_bytes=size)
        whole = size == self.item.payload_bytes
        self.left -= columns
        if whole or not self.scatters:
            return (piece,), size
        elements = size // DTYPE_BYTES[self.item.dtype]
        return (streamed("copy", elements, 2 * size, self.item.dtype), piece), size


def _taken(line: deque[_Waiting], limit: int | None) -> tuple[WorkItem, ...]:
    """Work taken from the head of the line, within a limit of bytes."""
    work: list[WorkItem] = []
    while line:
        items, size = line[0].take(line[0].item.payload_bytes if limit is None else limit)
        work += items
        limit = None if limit is None else limit - size
        if line[0].left:
            break
        line.popleft()
    return tuple(work)


def waits(chunk: StageChunk) -> bool:
    """True if sums of a chunk wait for windows."""
    return any(entry.unit is not None and entry.unit.waiting is not None for entry in chunk.layers)


def technique_of(chunk: StageChunk) -> str:
    """The technique whose windows they are."""
    units = (entry.unit for entry in chunk.layers)
    found = (u.waiting.technique for u in units if u is not None and u.waiting is not None)
    return next(found)


def placed_sums(chunk: StageChunk) -> tuple[PlacedSums, ...]:
    """Where the sums of a chunk's last backward run, by layer in order of the model."""
    line: deque[_Waiting] = deque()
    placed: list[PlacedSums] = []
    for number in reversed(range(len(chunk.layers))):
        entry = chunk.layers[number]
        beside = () if entry.window_bytes is None else _taken(line, entry.window_bytes)
        unit = finished_unit(chunk, number)
        joins = unit is not None and unit.waiting is not None
        if unit is not None and unit.waiting is not None:
            line.extend(map(_Waiting, unit.waiting.items))
        behind = chunk.layers[number - 1].window_bytes if number else None
        at_once = number == 0 or (joins and behind is None)
        after = _taken(line, None) if at_once else ()
        placed.append(PlacedSums(beside, after, sum(one.held_bytes for one in line)))
    return tuple(reversed(placed))


def finished_unit(chunk: StageChunk, number: int) -> FsdpUnit | None:
    """The sharded unit with complete gradients after layer ``number``'s backward.

    A head with the embedding's unit moves with it: that backward comes last.
    """
    entry = chunk.layers[number]
    if entry.unit is not None and number == len(chunk.layers) - 1 and chunk.first_shared >= 0:
        return None
    unit = entry.unit
    if unit is None and number == chunk.first_shared:
        unit = chunk.layers[-1].unit
    return unit if unit is not None and unit.wrapped else None
