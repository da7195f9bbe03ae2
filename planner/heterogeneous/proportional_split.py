"""Layers of each stage in proportion to its rate, within memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..space.pipeline_shape import PipelineShape
from .joint_table import joint_table
from .option_tables import RankClassTables, StageTables

HEADROOM = 0.97
"""Part of a device's budget for layers of the commonest class: other layers need some too."""


def proportional_split(
    shape: PipelineShape,
    tables: Sequence[StageTables],
    budgets: Sequence[Sequence[float]],
    seconds: Sequence[float],
) -> list[float] | None:
    """Layers of every stage, in fractions; None without room for the model."""
    layers = len(tables[0])
    most = [_room(shape, s, tables[s][layers // 2], budgets[s]) for s in range(shape.stages)]
    if sum(most) < layers:
        return None
    shares, free = [0.0] * shape.stages, set(range(shape.stages))
    left = float(layers)
    while free:
        rate = sum(1 / seconds[s] for s in free)
        full = {s for s in free if left / seconds[s] / rate >= most[s]}
        if not full:
            for s in free:
                shares[s] = left / seconds[s] / rate
            break
        for s in full:
            shares[s] = most[s]
        left -= sum(most[s] for s in full)
        free -= full
    return shares


def _room(
    shape: PipelineShape, stage: int, tables: RankClassTables | None, budgets: Sequence[float]
) -> float:
    if tables is None:
        return 0.0
    in_flight = sum(shape.first_in_flight(stage)) / shape.chunks
    table = joint_table(tables, budgets)
    least = float(table.bytes_at(in_flight).min())
    return HEADROOM * min(budgets) / least if least > 0 else math.inf
