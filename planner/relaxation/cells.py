"""Cells: the layers of a pipeline that choose their options together, and what options cost.

Layers of one seat of a position are a cell of a pipeline with fixed cuts. Where cuts are free every
position has a cell of each kind, and how many layers it has is chosen too; the first layer stays on
the first position and the last one on the last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..chain_weights import WEIGHED
from ..chains import every_pass
from ..cut_pipeline import CutPipeline, Floats, Seat
from ..pass_table import KINDS, SHARED, TRAFFIC, WIRE, WORK, PassTable
from ..shape import Shape

WAYS = len(WEIGHED)
MessageSeconds = Callable[[int, int, float], float]
"""Seconds from one stage to another of a message of so many bytes."""


class Cell(NamedTuple):
    """Like layers of a position; ``count`` of them, or None where that is chosen."""

    position: int
    kind: int
    seat: Seat | None
    count: int | None


class Cells:
    """The cells of a pipeline.

    Args:
        tables: of each layer kind.
        shape: the pipeline.
        cells: who may sit where.
        free: layers of each kind that cells without a count share.
        most: layers that such cells of a position have at the most together.
        travel_s: least seconds of the messages into each position, going forward and backward,
            shape (2, positions).
        sent_s: of some cells, by how much longer than that the message is that each option of
            their layer, the last of its position, hands on, shape (options,).
    """

    def __init__(
        self,
        tables: Mapping[int, PassTable],
        shape: Shape,
        cells: Sequence[Cell],
        free: Mapping[int, int],
        most: Sequence[int],
        travel_s: Floats,
        sent_s: Mapping[int, Floats],
    ) -> None:
        self.tables = tables
        self.travel_s, self.sent_s = travel_s, dict(sent_s)
        self.shape = shape
        self.cells = tuple(cells)
        self.free = dict(free)
        self.most = tuple(most)
        flights = [shape.first_in_flight(stage) for stage in range(shape.stages)]
        self.stages = [shape.stage_of(cell.position) for cell in cells]
        held = {
            shape.position(stage, chunk): flights[stage][chunk]
            for stage in range(shape.stages)
            for chunk in range(shape.chunks)
        }
        self.bytes = [tables[cell.kind].bytes_at(held[cell.position]) for cell in cells]
        self.promised_s = self._promised()
        self.at: list[list[int]] = [[] for _ in range(shape.positions)]
        self._columns: dict[tuple[int, Seat | None], Floats] = {}
        for number, cell in enumerate(cells):
            self.at[cell.position].append(number)

    def columns(self, number: int) -> Floats:
        """Seconds of a cell's options, a layer each, shape (options, COLUMNS, KINDS)."""
        cell = self.cells[number]
        key = (cell.kind, cell.seat)
        if key not in self._columns:
            table = self.tables[cell.kind]
            columns = table.columns
            if cell.seat is not None:
                _, layers, kinds, first, last = cell.seat
                most_s = np.max([self.tables[kind].most_s for kind in kinds], axis=0)
                columns = columns.copy()
                columns[:, WORK] += table.shown_s(layers, most_s, first, last)
            self._columns[key] = columns
        return self._columns[key]

    def _promised(self) -> Floats:
        """What a pass of a position has besides its layers, shape (positions, WAYS, KINDS)."""
        found = np.zeros((self.shape.positions, WAYS, KINDS))
        for position in range(self.shape.positions):
            kinds = {cell.kind for cell in self.cells if cell.position == position}
            tables = [self.tables[kind] for kind in kinds]
            found[position, WEIGHED.index(TRAFFIC)] = np.min([t.least_s for t in tables], axis=0)
            found[position, WEIGHED.index(SHARED)] = np.sum([t.once_s for t in tables], axis=0)
            found[position, WEIGHED.index(WIRE)] = np.sum([t.wire_once_s for t in tables], axis=0)
        return found


def cut_cells(cut: CutPipeline, message_s: MessageSeconds) -> Cells:
    """The cells of a pipeline with fixed cuts; ``message_s`` between two stages, of bytes."""
    cells = [
        Cell(position, seat[0], seat, count)
        for position, seats in enumerate(cut.places)
        for seat, count in seats.items()
    ]
    travel_s = np.zeros((2, cut.shape.positions))
    sent_s: dict[int, Floats] = {}
    for number, cell in enumerate(cells):
        after = cell.position + 1
        if cell.seat is None or not cell.seat[-1] or after == cut.shape.positions:
            continue
        ends = (cut.shape.stage_of(cell.position), cut.shape.stage_of(after))
        sizes = cut.tables[cell.kind].output_bytes
        seconds = {size: message_s(*ends, size) for size in set(sizes.tolist())}
        every_s = np.array([seconds[size] for size in sizes.tolist()])
        travel_s[0, after] = travel_s[1, cell.position] = every_s.min()
        if every_s.max() > every_s.min():
            sent_s[number] = every_s - every_s.min()
    return Cells(cut.tables, cut.shape, cells, {}, [0] * cut.shape.positions, travel_s, sent_s)


def free_cells(
    tables: Mapping[int, PassTable],
    kinds: Sequence[int],
    shape: Shape,
    message_s: MessageSeconds,
    within_s: float,
) -> Cells:
    """The cells of a pipeline of one chunk a stage, however it is cut.

    Args:
        tables: of each layer kind.
        kinds: the kind of every layer.
        shape: the pipeline.
        message_s: between two stages, of bytes.
        within_s: plans that take longer are of no interest.
    """
    last = shape.positions - 1
    cells = [Cell(0, kinds[0], None, 1), Cell(last, kinds[-1], None, 1)]
    free = Counter(kinds[1:-1])
    cells += [Cell(p, kind, None, None) for p in range(shape.positions) for kind in free]
    least = {kind: _least(table, shape) for kind, table in tables.items()}
    layers = list(accumulate(sorted(least[kind] for kind in kinds[1:-1])))
    ends_s = {0: least[kinds[0]], last: least[kinds[-1]]}
    most = [
        bisect_right(layers, within_s - ends_s.get(position, 0.0))
        for position in range(shape.positions)
    ]
    size = min(float(table.output_bytes.min()) for table in tables.values())
    travel_s = np.zeros((2, shape.positions))
    for position in range(1, shape.positions):
        travel_s[0, position] = message_s(position - 1, position, size)
        travel_s[1, position - 1] = message_s(position - 1, position, size)
    return Cells(tables, shape, cells, free, most, travel_s, {})


def _least(table: PassTable, shape: Shape) -> float:
    """Least seconds that one layer adds to its stage's step."""
    return float((table.columns[:, WORK] @ every_pass(shape.kind, shape.microbatches)).min())
