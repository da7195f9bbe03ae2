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
from numpy.typing import NDArray

from ...spec.schedule import ScheduleKind
from ..chain_weights import WEIGHED
from ..chains import every_pass
from ..cut_pipeline import CutPipeline, Floats, Seat, shown_in
from ..pass_table import KINDS, SHARED, TRAFFIC, WORK, PassTable
from ..shape import Shape

WAYS = len(WEIGHED)
Truths = NDArray[np.bool_]
MessageSeconds = Callable[[int, int, float], float]
"""Seconds from one stage to another of a message of so many bytes."""


class Cell(NamedTuple):
    """Like layers of a position, so many, or None where that is chosen."""

    position: int
    kind: int
    seat: Seat | None
    layers: int | None


class StageCost(NamedTuple):
    """A lower bound of a stage's step: seconds of a layer of each kind, and the rest."""

    seconds: Mapping[int, float]
    rest_s: float


class Cells:
    """The cells of a pipeline.

    Args:
        tables: of each layer kind.
        shape: the pipeline.
        cells: who may sit where.
        free: layers of each kind that cells without a number share.
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
        self._ways: dict[tuple[int, Seat | None], Floats] = {}
        self._says: dict[tuple[int, Seat | None], Truths] = {}
        for number, cell in enumerate(cells):
            self.at[cell.position].append(number)

    def columns(self, number: int) -> Floats:
        """Seconds of a cell's options, a layer each, shape (options, COLUMNS, KINDS)."""
        cell = self.cells[number]
        key = (cell.kind, cell.seat)
        if key not in self._columns:
            columns = self.tables[cell.kind].columns
            if cell.seat is not None:
                columns = columns.copy()
                columns[:, WORK] += shown_in(self.tables, cell.seat)
            self._columns[key] = columns
        return self._columns[key]

    def ways(self, number: int) -> Floats:
        """Seconds of a cell's options by each way to weigh them, shape (options, WAYS, KINDS)."""
        key = (self.cells[number].kind, self.cells[number].seat)
        if key not in self._ways:
            columns = self.columns(number)
            found: Floats = columns[:, list(WEIGHED)].copy()
            found[:, WEIGHED.index(SHARED)] += columns[:, WORK]
            self._ways[key] = found
            self._says[key] = np.asarray(columns[:, list(WEIGHED)].any(axis=0))
        return self._ways[key]

    def says(self, place: int) -> Truths:
        """Which ways to weigh say anything of a position's passes, shape (WAYS, KINDS)."""
        for number in self.at[place]:
            self.ways(number)
        cells = [self.cells[number] for number in self.at[place]]
        found: Truths = np.any([self._says[cell.kind, cell.seat] for cell in cells], axis=0)
        return found

    def _promised(self) -> Floats:
        """What a pass of a position has besides its layers, shape (positions, WAYS, KINDS)."""
        found = np.zeros((self.shape.positions, WAYS, KINDS))
        for position in range(self.shape.positions):
            kinds = {cell.kind for cell in self.cells if cell.position == position}
            tables = [self.tables[kind] for kind in kinds]
            found[position, WEIGHED.index(TRAFFIC)] = np.min([t.least_s for t in tables], axis=0)
            found[position, WEIGHED.index(SHARED)] = np.sum([t.once_s for t in tables], axis=0)
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
    least: Sequence[StageCost],
    within_s: float,
) -> Cells:
    """The cells of a pipeline of one chunk a stage, however it is cut.

    Args:
        tables: of each layer kind.
        kinds: the kind of every layer.
        shape: the pipeline.
        message_s: between two stages, of bytes.
        least: what layers certainly add to the time of their stage.
        within_s: plans that take longer are of no interest.
    """
    last = shape.positions - 1
    cells = [Cell(0, kinds[0], None, 1), Cell(last, kinds[-1], None, 1)]
    free = Counter(kinds[1:-1])
    cells += [Cell(p, kind, None, None) for p in range(shape.positions) for kind in free]
    ends = [(position == 0, position == last) for position in range(shape.positions)]
    limits = {
        each: min(_most_layers(kinds, cost, each, within_s) for cost in least) for each in {*ends}
    }
    most = [limits[each] for each in ends]
    size = min(float(table.output_bytes.min()) for table in tables.values())
    travel_s = np.zeros((2, shape.positions))
    for position in range(1, shape.positions):
        travel_s[0, position] = message_s(position - 1, position, size)
        travel_s[1, position - 1] = message_s(position - 1, position, size)
    return Cells(tables, shape, cells, free, most, travel_s, {})


def pooled_cells(
    tables: Mapping[int, PassTable], kinds: Sequence[int], shape: Shape, positions: tuple[int, int]
) -> Cells:
    """All layers in one place, with the memory of all stages: no pipeline takes less in all.

    Args:
        tables: of each layer kind.
        kinds: the kind of every layer.
        shape: one stage, with the micro-batches of the pipelines.
        positions: the fewest and the most that pipelines have.
    """
    cells = [Cell(0, kind, None, count) for kind, count in Counter(kinds).items()]
    found = Cells(tables, shape, cells, {}, [0], np.zeros((2, 1)), {})
    promised = found.promised_s
    found.promised_s = np.where(promised > 0, positions[0] * promised, positions[1] * promised)
    return found


def work_cost(tables: Mapping[int, PassTable], kind: ScheduleKind, microbatches: int) -> StageCost:
    """The work alone of layers in a stage of one chunk."""
    counts = every_pass(kind, microbatches)
    return StageCost(
        {k: float((t.columns[:, WORK] @ counts).min()) for k, t in tables.items()}, 0.0
    )


def _most_layers(
    kinds: Sequence[int], cost: StageCost, ends: tuple[bool, bool], within_s: float
) -> int:
    """How many layers between the first and the last a stage has time for, the cheapest ones.

    Args:
        kinds: the kind of every layer.
        cost: of its layers.
        ends: whether the stage has the first layer, and the last one, besides.
        within_s: its time.
    """
    left_s = within_s - cost.rest_s
    left_s -= ends[0] * cost.seconds[kinds[0]] + ends[1] * cost.seconds[kinds[-1]]
    layers = accumulate(sorted(cost.seconds[kind] for kind in kinds[1:-1]))
    return bisect_right(list(layers), left_s)
