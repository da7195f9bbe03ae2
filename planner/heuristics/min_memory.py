"""The plan of a shape that needs the least memory: what is tried before nothing is said to fit.

Every layer takes the strategy with the fewest estimated bytes at its stage's fullest moment,
one activation layout at a time; the cuts are even. Only simulation says what it really needs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...spec.schedules.stage_order import chunk_location
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision
from ..dynamic_programming.stage_partition import even_boundaries
from ..space.search_space import PipelineShape
from ..tables.option_table import OptionTable


class MinMemoryPlan(NamedTuple):
    """Estimated bytes of the fullest stage, and the decision."""

    peak_bytes: float
    decision: Decision


def min_memory(shape: PipelineShape, tables: list[OptionTable]) -> MinMemoryPlan:
    """The leanest decision of a shape.

    Args:
        shape: what is decided already.
        tables: the options of every layer, in order; layers of a kind share theirs.
    """
    layouts = sorted({*tables[len(tables) // 2].layouts.tolist()})
    return min((_in_layout(shape, tables, n) for n in layouts), key=lambda x: x.peak_bytes)


def _in_layout(shape: PipelineShape, tables: list[OptionTable], layout: int) -> MinMemoryPlan:
    boundaries = even_boundaries(len(tables), shape)
    held = [sum(shape.first_in_flight(s)) / shape.chunks for s in range(shape.stages)]
    stage_bytes = [0.0] * shape.stages
    strategies: list[LayerStrategy] = []
    known: dict[tuple[int, float], tuple[float, LayerStrategy]] = {}
    for position in range(shape.positions):
        stage, _ = chunk_location(shape.kind, position, shape.stages)
        for table in tables[boundaries[position] : boundaries[position + 1]]:
            key = (id(table), held[stage])
            if key not in known:
                known[key] = _least(table, held[stage], layout)
            stage_bytes[stage] += known[key][0]
            strategies.append(known[key][1])
    return MinMemoryPlan(max(stage_bytes), Decision(shape, tuple(boundaries), tuple(strategies)))


def _least(table: OptionTable, held: float, layout: int) -> tuple[float, LayerStrategy]:
    """Fewest bytes with ``held`` micro-batches in flight; any layout where this one is missing."""
    needs = table.bytes_at(held)
    inside = table.layouts == layout
    if inside.any():
        needs = np.where(inside, needs, np.inf)
    best = int(needs.argmin())
    return float(needs[best]), table.strategies[best]
