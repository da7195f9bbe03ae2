"""Groups of interchangeable layers of a pipeline, and their option costs.

With fixed boundaries, layers of one layer position of a chunk are a group. With free boundaries a
pipeline position has the groups of all its possible runs of layers, and the run is chosen too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..chains.chain_weights import WEIGHTED_COLUMNS, of_column, weighted_columns
from ..chains.fixed_cuts import FixedPipeline
from ..space.in_flight import ONE_IN_FLIGHT, InFlight
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Bools, Floats, Ints, Records
from ..tables.layer_position import LayerPosition, LayerPositions
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import PassTable, once_per_pass
from .stage_feasibility import Arc, RunPositions

WEIGHTING_COUNT = len(WEIGHTED_COLUMNS)
CostClass = tuple[int, LayerPosition | None]
"""A layer class, and a representative of the positions of equal cost; None where all are one."""
StageMessageSeconds = Callable[[int, int, float], float]
"""Seconds from one stage to another of a message of so many bytes."""


class LayerGroup(NamedTuple):
    """Interchangeable layers of a position; their number, or 0 if chosen."""

    position: int
    layer_class: int
    layer_position: LayerPosition | None
    layers: int


class StageContent(NamedTuple):
    """Possible content of a position: (group number, layers) of its groups."""

    position: int
    layers: tuple[tuple[int, int], ...]


class StageArcs(NamedTuple):
    """Runs of a position: first layers, ends, and content numbers."""

    starts: Ints
    stops: Ints
    contents: Ints


class LayerGroups:
    """Layer groups of a pipeline.

    Args:
        layer_positions: of the stage context.
        shape: the pipeline.
        groups: layers of each position.
        travel_s: minimum seconds of messages into each position, forward and backward, shape (2,
            positions).
        extra_send_s: extra message seconds by option of a group's layer as the last of its
            position, shape (options,); of some groups.
        peak_in_flight: in-flight micro-batches of each position at its stage's memory peak.
        contents: possible contents of positions, if chosen.
        stage_arcs: runs of layers of each position, if chosen.

    ``bytes``: of a layer's options in each group, shape (memories, options).
    ``by_position``: group numbers of each position. ``equivalent_groups``: those of each cost
    class.
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
        self._option_costs: dict[CostClass, Records] = {}
        self._weighted: dict[CostClass, Floats] = {}
        self._is_binding: dict[CostClass, Bools] = {}
        for number, group in enumerate(groups):
            cost_class: CostClass = (group.layer_class, None)
            if group.layer_position is not None:
                equivalent_position = layer_positions.equivalent_position(group.layer_position)
                cost_class = (group.layer_class, equivalent_position)
            self._cost_class.append(cost_class)
            self.by_position[group.position].append(number)
            self.equivalent_groups.setdefault(cost_class, []).append(number)

    def option_costs(self, number: int) -> Records:
        """``PASS_COLUMNS`` of a layer's options in a group, shape (options,)."""
        cost_class = self._cost_class[number]
        if cost_class not in self._option_costs:
            layer_class, layer_position = cost_class
            self._option_costs[cost_class] = (
                self.tables[layer_class].columns
                if layer_position is None
                else self.layer_positions.option_costs(layer_position)
            )
        return self._option_costs[cost_class]

    def weightings(self, number: int) -> Floats:
        """Weighted seconds of options, shape (options, WEIGHTING_COUNT, KINDS)."""
        cost_class = self._cost_class[number]
        if cost_class not in self._weighted:
            option_costs = self.option_costs(number)
            weighted_s = weighted_columns(option_costs)
            self._is_binding[cost_class] = np.asarray(weighted_s.any(axis=0))
            of_column(weighted_s, "slowdown")[...] += option_costs["work"]
            self._weighted[cost_class] = weighted_s
        return self._weighted[cost_class]

    def is_binding(self, position: int) -> Bools:
        """Binding weightings of a position, shape (WEIGHTING_COUNT, KINDS)."""
        for number in self.by_position[position]:
            self.weightings(number)
        cost_classes = {self._cost_class[number] for number in self.by_position[position]}
        is_binding: Bools = np.any([self._is_binding[k] for k in cost_classes], axis=0)
        return is_binding

    def _per_pass_s(self) -> Floats:
        """Fixed terms of passes, shape (positions, WEIGHTING_COUNT, KINDS)."""
        seconds = np.zeros((self.shape.positions, WEIGHTING_COUNT, KINDS))
        for position in range(self.shape.positions):
            layer_classes = {g.layer_class for g in self.groups if g.position == position}
            once_s, least_s = once_per_pass([self.tables[k] for k in layer_classes])
            of_column(seconds[position], "traffic")[...] = least_s
            of_column(seconds[position], "slowdown")[...] = once_s
        return seconds


def _bytes_of(
    tables: Mapping[int, PassTable],
    groups: Sequence[LayerGroup],
    peak_in_flight: Sequence[InFlight],
) -> list[Floats]:
    keys = [
        (
            group.layer_class,
            peak_in_flight[group.position],
            group.layer_position is not None and group.layer_position.is_last,
        )
        for group in groups
    ]
    arrays = {
        (layer_class, in_flight, is_last): tables[layer_class].memory_at(in_flight, is_last)
        for layer_class, in_flight, is_last in dict.fromkeys(keys)
    }
    return [arrays[key] for key in keys]


def in_flight_by_position(shape: PipelineShape) -> list[InFlight]:
    """In-flight micro-batches of each position at its stage's memory peak."""
    by_position = [ONE_IN_FLIGHT] * shape.positions
    for stage in range(shape.stages):
        for chunk, in_flight in enumerate(shape.peak_in_flight(stage)):
            by_position[shape.position(stage, chunk)] = in_flight
    return by_position


def fixed_boundary_groups(pipeline: FixedPipeline, message_s: StageMessageSeconds) -> LayerGroups:
    """Groups of a pipeline with fixed boundaries."""
    groups = [
        LayerGroup(position, layer_position.layer_class, layer_position, count)
        for position, position_counts in enumerate(pipeline.position_counts)
        for layer_position, count in position_counts.items()
    ]
    shape = pipeline.shape
    travel_s = np.zeros((2, shape.positions))
    extra_send_s: dict[int, Floats] = {}
    sizes_by_class: dict[int, tuple[Floats, Ints]] = {}
    for number, (position, layer_class, layer_position, _) in enumerate(groups):
        after = position + 1
        if layer_position is None or not layer_position.is_last or after == shape.positions:
            continue
        if layer_class not in sizes_by_class:
            output_bytes = pipeline.tables[layer_class].output_bytes
            sizes_by_class[layer_class] = np.unique(output_bytes, return_inverse=True)
        sizes, option_sizes = sizes_by_class[layer_class]
        stages = (shape.stage_of(position), shape.stage_of(after))
        seconds = np.array([message_s(*stages, size) for size in sizes.tolist()])
        travel_s[0, after] = travel_s[1, position] = least_s = seconds.min()
        if seconds.max() > least_s:
            extra_send_s[number] = (seconds - least_s)[option_sizes]
    return LayerGroups(
        pipeline.layer_positions,
        shape,
        groups,
        travel_s,
        extra_send_s,
        in_flight_by_position(shape),
    )


def free_boundary_groups(
    layer_positions: LayerPositions,
    shape: PipelineShape,
    arcs: Sequence[Sequence[Arc]],
    travel_s: Floats,
) -> LayerGroups:
    """Groups of a one-chunk pipeline, each stage with one of its runs.

    Layer positions of equal exposed communication are one group.

    Args:
        layer_positions: of the stage context.
        shape: the pipeline.
        arcs: runs of each stage.
        travel_s: minimum seconds of messages into each position, shape (2, positions).
    """
    groups: list[LayerGroup] = []
    contents: list[StageContent] = []
    stage_arcs: list[StageArcs] = []
    for position, position_arcs in enumerate(arcs):
        content_numbers: dict[RunPositions, int] = {}
        group_numbers: dict[LayerPosition, int] = {}
        for run in dict.fromkeys(arc.run for arc in position_arcs):
            layers: Counter[int] = Counter()
            for layer_position, count in run:
                equivalent = layer_positions.equivalent_position(layer_position)
                if equivalent not in group_numbers:
                    group_numbers[equivalent] = len(groups)
                    groups.append(LayerGroup(position, equivalent.layer_class, equivalent, 0))
                layers[group_numbers[equivalent]] += count
            content_numbers[run] = len(contents)
            contents.append(StageContent(position, tuple(layers.items())))
        ends = [(arc.start, arc.stop, content_numbers[arc.run]) for arc in position_arcs]
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
    """All layers in one stage with the memory of all, a relaxation.

    Args:
        layer_positions: of the stage context.
        layer_classes: class of every layer.
        shape: one stage, with the pipelines' micro-batches.
        positions: minimum and maximum positions of the pipelines.
    """
    groups = [
        LayerGroup(0, layer_class, None, count)
        for layer_class, count in Counter(layer_classes).items()
    ]
    one_stage = LayerGroups(layer_positions, shape, groups, np.zeros((2, 1)), {}, (ONE_IN_FLIGHT,))
    seconds, (fewest, most) = one_stage.per_pass_s, positions
    one_stage.per_pass_s = np.where(seconds > 0, fewest * seconds, most * seconds)
    return one_stage
