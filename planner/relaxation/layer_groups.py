"""Cells: the layers of a pipeline that choose their options together, and what options cost.

Layers of one seat of a position are a cell of a pipeline with fixed cuts. Where cuts are free a
position has the cells of all runs of layers that it may hold, and which run it holds is chosen too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..chains.chain_weights import WEIGHED
from ..chains.fixed_cuts import CutPipeline, Floats
from ..space.in_flight import ONE, Held
from ..space.pipeline_shape import Shape
from ..tables.layer_position import Seat, Seats
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import SHARED, TRAFFIC, WORK, PassTable, besides
from .stage_feasibility import Arc, Run

WAYS = len(WEIGHED)
Truths = NDArray[np.bool_]
Counts = NDArray[np.int64]
Alike = tuple[int, Seat | None]
"""A kind of layers, and a seat among those in which they cost the same; none where all are one."""
MessageSeconds = Callable[[int, int, float], float]
"""Seconds from one stage to another of a message of so many bytes."""


class Cell(NamedTuple):
    """Like layers of a position, so many, or 0 where that is chosen."""

    position: int
    kind: int
    seat: Seat | None
    layers: int


class Content(NamedTuple):
    """What a position may hold: so many layers of its cells, by their numbers."""

    position: int
    layers: tuple[tuple[int, int], ...]


class Flow(NamedTuple):
    """Runs of layers of a position: first layers, those after the last, numbers of contents."""

    starts: Counts
    stops: Counts
    contents: Counts


class Cells:
    """The cells of a pipeline.

    Args:
        seats: of the place.
        shape: the pipeline.
        cells: who may sit where.
        travel_s: least seconds of the messages into each position, going forward and backward,
            shape (2, positions).
        sent_s: of some cells, by how much longer than that the message is that each option of
            their layer, the last of its position, hands on, shape (options,).
        held: what each position holds at its stage's fullest moment.
        contents: what a position may hold, where that is chosen.
        flows: the runs of layers of each position, where those are chosen.

    ``at`` are the numbers of the cells of each position, ``alike`` of those that cost the same.
    """

    def __init__(
        self,
        seats: Seats,
        shape: Shape,
        cells: Sequence[Cell],
        travel_s: Floats,
        sent_s: Mapping[int, Floats],
        held: Sequence[Held],
        contents: Sequence[Content] = (),
        flows: Sequence[Flow] = (),
    ) -> None:
        self.seats, self.tables = seats, seats.tables
        self.travel_s, self.sent_s = travel_s, dict(sent_s)
        self.shape = shape
        self.cells = tuple(cells)
        self.contents, self.flows = tuple(contents), tuple(flows)
        self.stages = [shape.stage_of(cell.position) for cell in cells]
        self.bytes = _bytes_of(self.tables, cells, held)
        self.promised_s = self._promised()
        self.at: list[list[int]] = [[] for _ in range(shape.positions)]
        self.alike: dict[Alike, list[int]] = {}
        self._alike: list[Alike] = []
        self._columns: dict[Alike, Floats] = {}
        self._ways: dict[Alike, Floats] = {}
        self._says: dict[Alike, Truths] = {}
        for number, cell in enumerate(cells):
            like = (cell.kind, None if cell.seat is None else seats.like(cell.seat))
            self._alike.append(like)
            self.at[cell.position].append(number)
            self.alike.setdefault(like, []).append(number)

    def columns(self, number: int) -> Floats:
        """Seconds of a cell's options, a layer each, shape (options, COLUMNS, KINDS)."""
        like = self._alike[number]
        if like not in self._columns:
            kind, seat = like
            own = self.tables[kind].columns if seat is None else self.seats.columns(seat)
            self._columns[like] = own
        return self._columns[like]

    def ways(self, number: int) -> Floats:
        """Seconds of a cell's options by each way to weigh them, shape (options, WAYS, KINDS)."""
        like = self._alike[number]
        if like not in self._ways:
            columns = self.columns(number)
            found: Floats = columns[:, list(WEIGHED)]
            self._says[like] = np.asarray(found.any(axis=0))
            found[:, WEIGHED.index(SHARED)] += columns[:, WORK]
            self._ways[like] = found
        return self._ways[like]

    def says(self, place: int) -> Truths:
        """Which ways to weigh say anything of a position's passes, shape (WAYS, KINDS)."""
        for number in self.at[place]:
            self.ways(number)
        own = {self._alike[number] for number in self.at[place]}
        found: Truths = np.any([self._says[like] for like in own], axis=0)
        return found

    def _promised(self) -> Floats:
        """What a pass of a position has besides its layers, shape (positions, WAYS, KINDS)."""
        found = np.zeros((self.shape.positions, WAYS, KINDS))
        for position in range(self.shape.positions):
            kinds = {cell.kind for cell in self.cells if cell.position == position}
            once_s, least_s = besides([self.tables[kind] for kind in kinds])
            found[position, WEIGHED.index(TRAFFIC)] = least_s
            found[position, WEIGHED.index(SHARED)] = once_s
        return found


def _bytes_of(
    tables: Mapping[int, PassTable], cells: Sequence[Cell], held: Sequence[Held]
) -> list[Floats]:
    """Bytes of the options of each cell, one array for all whose chunks hold as much."""
    known: dict[tuple[int, Held], Floats] = {}
    for kind, own in {(cell.kind, held[cell.position]): None for cell in cells}:
        known[kind, own] = tables[kind].bytes_at(own)
    return [known[cell.kind, held[cell.position]] for cell in cells]


def all_held(shape: Shape) -> list[Held]:
    """What each position of a pipeline holds at its stage's fullest moment."""
    found = [ONE] * shape.positions
    for stage in range(shape.stages):
        for chunk, held in enumerate(shape.held(stage)):
            found[shape.position(stage, chunk)] = held
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
    known: dict[int, tuple[Floats, Counts]] = {}
    for number, cell in enumerate(cells):
        after = cell.position + 1
        if cell.seat is None or not cell.seat[-1] or after == cut.shape.positions:
            continue
        ends = (cut.shape.stage_of(cell.position), cut.shape.stage_of(after))
        if cell.kind not in known:
            known[cell.kind] = np.unique(cut.tables[cell.kind].output_bytes, return_inverse=True)
        sizes, option_sizes = known[cell.kind]
        seconds = np.array([message_s(*ends, size) for size in sizes.tolist()])
        travel_s[0, after] = travel_s[1, cell.position] = least_s = seconds.min()
        if seconds.max() > least_s:
            sent_s[number] = (seconds - least_s)[option_sizes]
    return Cells(cut.seats, cut.shape, cells, travel_s, sent_s, all_held(cut.shape))


def free_cells(
    seats: Seats,
    shape: Shape,
    arcs: Sequence[Sequence[Arc]],
    travel_s: Floats,
) -> Cells:
    """The cells of a pipeline of one chunk a stage whose stages hold some of their runs.

    Seats in which the same shows of hidden traffic are one cell.

    Args:
        seats: of the place.
        shape: the pipeline.
        arcs: the runs of each stage.
        travel_s: least seconds of the messages into each position, shape (2, positions).
    """
    cells: list[Cell] = []
    contents: list[Content] = []
    flows: list[Flow] = []
    for position, own in enumerate(arcs):
        numbers: dict[Run, int] = {}
        places: dict[Seat, int] = {}
        for run in dict.fromkeys(arc.run for arc in own):
            held: Counter[int] = Counter()
            for seat, count in run:
                like = seats.like(seat)
                if like not in places:
                    places[like] = len(cells)
                    cells.append(Cell(position, seat[0], like, 0))
                held[places[like]] += count
            numbers[run] = len(contents)
            contents.append(Content(position, tuple(held.items())))
        ends = [(arc.start, arc.stop, numbers[arc.run]) for arc in own]
        flows.append(Flow(*np.array(ends, dtype=np.int64).T))
    return Cells(seats, shape, cells, travel_s, {}, all_held(shape), contents, flows)


def pooled_cells(
    seats: Seats, kinds: Sequence[int], shape: Shape, positions: tuple[int, int]
) -> Cells:
    """All layers in one place, with the memory of all stages: no pipeline takes less in all.

    Args:
        seats: of the place.
        kinds: the kind of every layer.
        shape: one stage, with the micro-batches of the pipelines.
        positions: the fewest and the most that pipelines have.
    """
    cells = [Cell(0, kind, None, count) for kind, count in Counter(kinds).items()]
    found = Cells(seats, shape, cells, np.zeros((2, 1)), {}, (ONE,))
    promised = found.promised_s
    found.promised_s = np.where(promised > 0, positions[0] * promised, positions[1] * promised)
    return found
