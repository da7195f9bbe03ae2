"""Plan of minimum memory of a shape.

Every layer takes the strategy with the fewest estimated bytes at its stage's memory peak, one
activation layout at a time; stages are even. Only simulation tells the true need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...spec.schedules.stage_order import chunk_location
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision
from ..dynamic_programming.stage_partition import even_boundaries
from ..space.pipeline_shape import PipelineShape
from ..tables.option_table import OptionTable
from .heuristic import TryDecision


class MinMemoryPlan(NamedTuple):
    """A decision, and the estimated bytes of its fullest stage."""

    peak_bytes: float
    decision: Decision


class MinMemory:
    """Plans of minimum memory."""

    def __init__(self, tables: Callable[[PipelineShape], list[OptionTable]]) -> None:
        self._tables = tables
        self._plans: dict[PipelineShape, MinMemoryPlan] = {}

    def search(self, shape: PipelineShape, attempt: TryDecision) -> None:
        """Try the minimum-memory plan of a shape."""
        attempt(self._plan(shape).decision)

    def peak_bytes(self, shape: PipelineShape) -> float:
        """Minimum estimated bytes of a shape's fullest stage."""
        return self._plan(shape).peak_bytes

    def _plan(self, shape: PipelineShape) -> MinMemoryPlan:
        if shape not in self._plans:
            tables = self._tables(shape)
            layouts = sorted({*tables[len(tables) // 2].layouts.tolist()})
            plans = (_in_layout(shape, tables, layout) for layout in layouts)
            self._plans[shape] = min(plans, key=lambda plan: plan.peak_bytes)
        return self._plans[shape]


def _in_layout(shape: PipelineShape, tables: list[OptionTable], layout: int) -> MinMemoryPlan:
    boundaries = even_boundaries(len(tables), shape)
    in_flight = [sum(shape.first_in_flight(s)) / shape.chunks for s in range(shape.stages)]
    stage_bytes = [0.0] * shape.stages
    strategies: list[LayerStrategy] = []
    cache: dict[tuple[int, float], tuple[float, LayerStrategy]] = {}
    for position in range(shape.positions):
        stage, _ = chunk_location(shape.kind, position, shape.stages)
        for table in tables[boundaries[position] : boundaries[position + 1]]:
            key = (id(table), in_flight[stage])
            if key not in cache:
                cache[key] = _smallest(table, in_flight[stage], layout)
            stage_bytes[stage] += cache[key][0]
            strategies.append(cache[key][1])
    return MinMemoryPlan(max(stage_bytes), Decision(shape, tuple(boundaries), tuple(strategies)))


def _smallest(table: OptionTable, in_flight: float, layout: int) -> tuple[float, LayerStrategy]:
    """Option of fewest bytes; of any layout without this one."""
    bytes_ = table.bytes_at(in_flight)
    has_layout = table.layouts == layout
    if has_layout.any():
        bytes_ = np.where(has_layout, bytes_, np.inf)
    row = int(bytes_.argmin())
    return float(bytes_[row]), table.strategies[row]
