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
from ..dynamic_programming.stage_partition import even_cuts
from ..space.search_space import Shape
from ..tables.option_table import OptionTable


class Leanest(NamedTuple):
    """Estimated bytes of the fullest stage, and the decision."""

    fullest_bytes: float
    decision: Decision


def leanest(shape: Shape, tables: list[OptionTable]) -> Leanest:
    """The leanest decision of a shape.

    Args:
        shape: what is decided already.
        tables: the options of every layer, in order; layers of a kind share theirs.
    """
    layouts = sorted({*tables[len(tables) // 2].layouts.tolist()})
    return min((_in_layout(shape, tables, n) for n in layouts), key=lambda x: x.fullest_bytes)


def _in_layout(shape: Shape, tables: list[OptionTable], layout: int) -> Leanest:
    cuts = even_cuts(len(tables), shape)
    held = [sum(shape.first_in_flight(s)) / shape.chunks for s in range(shape.stages)]
    stage_bytes = [0.0] * shape.stages
    strategies: list[LayerStrategy] = []
    known: dict[tuple[int, float], tuple[float, LayerStrategy]] = {}
    for position in range(shape.positions):
        stage, _ = chunk_location(shape.kind, position, shape.stages)
        for table in tables[cuts[position] : cuts[position + 1]]:
            key = (id(table), held[stage])
            if key not in known:
                known[key] = _least(table, held[stage], layout)
            stage_bytes[stage] += known[key][0]
            strategies.append(known[key][1])
    return Leanest(max(stage_bytes), Decision(shape, tuple(cuts), tuple(strategies)))


def _least(table: OptionTable, held: float, layout: int) -> tuple[float, LayerStrategy]:
    """Fewest bytes with ``held`` micro-batches in flight; any layout where this one is missing."""
    needs = table.bytes_at(held)
    inside = table.layouts == layout
    if inside.any():
        needs = np.where(inside, needs, np.inf)
    best = int(needs.argmin())
    return float(needs[best]), table.strategies[best]
