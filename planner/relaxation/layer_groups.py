"""LayerGroups: the layers of a pipeline that choose their options together, and what options cost.

Layers of one seat of a position are a cell of a pipeline with fixed cuts. Where cuts are free a
position has the cells of all runs of layers that it may hold, and which run it holds is chosen too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..chains.chain_weights import WEIGHTED_COLUMNS
from ..chains.fixed_cuts import FixedPipeline, Floats
from ..space.in_flight import ONE_IN_FLIGHT, InFlight
from ..space.pipeline_shape import PipelineShape
from ..tables.layer_position import LayerPosition, LayerPositions
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import SHARED, TRAFFIC, WORK, PassTable, once_per_pass
from .stage_feasibility import Arc, RunPositions

WEIGHTING_COUNT = len(WEIGHTED_COLUMNS)
BoolArray = NDArray[np.bool_]
Counts = NDArray[np.int64]
CostClass = tuple[int, LayerPosition | None]
"""A kind of layers, and a seat among those in which they cost the same; none where all are one."""
StageMessageSeconds = Callable[[int, int, float], float]
"""Seconds from one stage to another of a message of so many bytes."""


class LayerGroup(NamedTuple):
    """Like layers of a position, so many, or 0 where that is chosen."""

    position: int
    kind: int
    layer_position: LayerPosition | None
    layers: int


class StageContent(NamedTuple):
    """What a position may hold: so many layers of its cells, by their numbers."""

    position: int
    layers: tuple[tuple[int, int], ...]


class StageArcs(NamedTuple):
    """Runs of layers of a position: first layers, those after the last, numbers of contents."""

    starts: Counts
    stops: Counts
    contents: Counts


class LayerGroups:
    """The cells of a pipeline.

    Args:
        layer_positions: of the place.
        shape: the pipeline.
        groups: who may sit where.
        travel_s: least seconds of the messages into each position, going forward and backward,
            shape (2, positions).
        extra_send_s: of some cells, by how much longer than that the message is that each option of
            their layer, the last of its position, hands on, shape (options,).
        peak_in_flight: what each position holds at its stage's fullest moment.
        contents: what a position may hold, where that is chosen.
        stage_arcs: the runs of layers of each position, where those are chosen.

    ``by_position`` are the numbers of the cells of each position, ``equivalent_groups`` of those
    that cost the same.
    """

    def __init__(
        self,
        layer_positions: LayerPositions,
        shape: PipelineShape,
        groups: Sequence[LayerGroup],
        travel_s: Floats,
        extra_send_s: Mapping[int, Floats],
        peak_in_flight: Sequence[InFlight],
        contents: Sequence[StageContent] = (),
        stage_arcs: Sequence[StageArcs] = (),
    ) -> None:
        self.layer_positions, self.tables = layer_positions, layer_positions.tables
        self.travel_s, self.extra_send_s = travel_s, dict(extra_send_s)
        self.shape = shape
        self.groups = tuple(groups)
        self.contents, self.stage_arcs = tuple(contents), tuple(stage_arcs)
        self.stages = [shape.stage_of(group.position) for group in groups]
        self.bytes = _bytes_of(self.tables, groups, peak_in_flight)
        self.per_pass_s = self._per_pass_s()
        self.by_position: list[list[int]] = [[] for _ in range(shape.positions)]
        self.equivalent_groups: dict[CostClass, list[int]] = {}
        self._cost_class: list[CostClass] = []
        self._columns: dict[CostClass, Floats] = {}
        self._weighted: dict[CostClass, Floats] = {}
        self._is_binding: dict[CostClass, BoolArray] = {}
        for number, group in enumerate(groups):
            equivalent_position = (
                group.kind,
                None
                if group.layer_position is None
                else layer_positions.equivalent_position(group.layer_position),
            )
            self._cost_class.append(equivalent_position)
            self.by_position[group.position].append(number)
            self.equivalent_groups.setdefault(equivalent_position, []).append(number)

    def columns(self, number: int) -> Floats:
        """Seconds of a cell's options, a layer each, shape (options, COLUMNS, KINDS)."""
        equivalent_position = self._cost_class[number]
        if equivalent_position not in self._columns:
            kind, layer_position = equivalent_position
            own = (
                self.tables[kind].columns
                if layer_position is None
                else self.layer_positions.columns(layer_position)
            )
            self._columns[equivalent_position] = own
        return self._columns[equivalent_position]

    def weightings(self, number: int) -> Floats:
        """Weighted seconds of options, shape (options, WEIGHTING_COUNT, KINDS)."""
        equivalent_position = self._cost_class[number]
        if equivalent_position not in self._weighted:
            columns = self.columns(number)
            found: Floats = columns[:, list(WEIGHTED_COLUMNS)]
            self._is_binding[equivalent_position] = np.asarray(found.any(axis=0))
            found[:, WEIGHTED_COLUMNS.index(SHARED)] += columns[:, WORK]
            self._weighted[equivalent_position] = found
        return self._weighted[equivalent_position]

    def is_binding(self, place: int) -> BoolArray:
        """Binding weightings of a position, shape (WEIGHTING_COUNT, KINDS)."""
        for number in self.by_position[place]:
            self.weightings(number)
        own = {self._cost_class[number] for number in self.by_position[place]}
        found: BoolArray = np.any(
            [self._is_binding[equivalent_position] for equivalent_position in own], axis=0
        )
        return found

    def _per_pass_s(self) -> Floats:
        """Fixed terms of passes, shape (positions, WEIGHTING_COUNT, KINDS)."""
        found = np.zeros((self.shape.positions, WEIGHTING_COUNT, KINDS))
        for position in range(self.shape.positions):
            layer_classes = {group.kind for group in self.groups if group.position == position}
            once_s, least_s = once_per_pass([self.tables[kind] for kind in layer_classes])
            found[position, WEIGHTED_COLUMNS.index(TRAFFIC)] = least_s
            found[position, WEIGHTED_COLUMNS.index(SHARED)] = once_s
        return found


def _bytes_of(
    tables: Mapping[int, PassTable],
    groups: Sequence[LayerGroup],
    peak_in_flight: Sequence[InFlight],
) -> list[Floats]:
    """Bytes of the options of each cell, one array for all whose chunks hold as much."""
    known: dict[tuple[int, InFlight], Floats] = {}
    for kind, own in {(group.kind, peak_in_flight[group.position]): None for group in groups}:
        known[kind, own] = tables[kind].bytes_at(own)
    return [known[group.kind, peak_in_flight[group.position]] for group in groups]


def in_flight_by_position(shape: PipelineShape) -> list[InFlight]:
    """What each position of a pipeline holds at its stage's fullest moment."""
    found = [ONE_IN_FLIGHT] * shape.positions
    for stage in range(shape.stages):
        for chunk, peak_in_flight in enumerate(shape.peak_in_flight(stage)):
            found[shape.position(stage, chunk)] = peak_in_flight
    return found


def fixed_boundary_groups(cut: FixedPipeline, message_s: StageMessageSeconds) -> LayerGroups:
    """The cells of a pipeline with fixed cuts; ``message_s`` between two stages, of bytes."""
    groups = [
        LayerGroup(position, layer_position[0], layer_position, count)
        for position, layer_positions in enumerate(cut.places)
        for layer_position, count in layer_positions.items()
    ]
    travel_s = np.zeros((2, cut.shape.positions))
    extra_send_s: dict[int, Floats] = {}
    known: dict[int, tuple[Floats, Counts]] = {}
    for number, group in enumerate(groups):
        after = group.position + 1
        if (
            group.layer_position is None
            or not group.layer_position[-1]
            or after == cut.shape.positions
        ):
            continue
        ends = (cut.shape.stage_of(group.position), cut.shape.stage_of(after))
        if group.kind not in known:
            known[group.kind] = np.unique(cut.tables[group.kind].output_bytes, return_inverse=True)
        sizes, option_sizes = known[group.kind]
        seconds = np.array([message_s(*ends, size) for size in sizes.tolist()])
        travel_s[0, after] = travel_s[1, group.position] = least_s = seconds.min()
        if seconds.max() > least_s:
            extra_send_s[number] = (seconds - least_s)[option_sizes]
    return LayerGroups(
        cut.layer_positions,
        cut.shape,
        groups,
        travel_s,
        extra_send_s,
        in_flight_by_position(cut.shape),
    )


def free_boundary_groups(
    layer_positions: LayerPositions,
    shape: PipelineShape,
    arcs: Sequence[Sequence[Arc]],
    travel_s: Floats,
) -> LayerGroups:
    """The cells of a pipeline of one chunk a stage whose stages hold some of their runs.

    Seats in which the same shows of hidden traffic are one cell.

    Args:
        layer_positions: of the place.
        shape: the pipeline.
        arcs: the runs of each stage.
        travel_s: least seconds of the messages into each position, shape (2, positions).
    """
    groups: list[LayerGroup] = []
    contents: list[StageContent] = []
    stage_arcs: list[StageArcs] = []
    for position, own in enumerate(arcs):
        numbers: dict[RunPositions, int] = {}
        places: dict[LayerPosition, int] = {}
        for run in dict.fromkeys(arc.run for arc in own):
            peak_in_flight: Counter[int] = Counter()
            for layer_position, count in run:
                equivalent_position = layer_positions.equivalent_position(layer_position)
                if equivalent_position not in places:
                    places[equivalent_position] = len(groups)
                    groups.append(LayerGroup(position, layer_position[0], equivalent_position, 0))
                peak_in_flight[places[equivalent_position]] += count
            numbers[run] = len(contents)
            contents.append(StageContent(position, tuple(peak_in_flight.items())))
        ends = [(arc.start, arc.stop, numbers[arc.run]) for arc in own]
        stage_arcs.append(StageArcs(*np.array(ends, dtype=np.int64).T))
    return LayerGroups(
        layer_positions,
        shape,
        groups,
        travel_s,
        {},
        in_flight_by_position(shape),
        contents,
        stage_arcs,
    )


def aggregated_groups(
    layer_positions: LayerPositions,
    layer_classes: Sequence[int],
    shape: PipelineShape,
    positions: tuple[int, int],
) -> LayerGroups:
    """All layers in one place, with the memory of all stages: no pipeline takes less in all.

    Args:
        layer_positions: of the place.
        layer_classes: the kind of every layer.
        shape: one stage, with the micro-batches of the pipelines.
        positions: the fewest and the most that pipelines have.
    """
    groups = [LayerGroup(0, kind, None, count) for kind, count in Counter(layer_classes).items()]
    found = LayerGroups(layer_positions, shape, groups, np.zeros((2, 1)), {}, (ONE_IN_FLIGHT,))
    promised = found.per_pass_s
    found.per_pass_s = np.where(promised > 0, positions[0] * promised, positions[1] * promised)
    return found
