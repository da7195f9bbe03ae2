"""Plan of minimum memory of a shape.

Every layer takes the strategy with the fewest estimated bytes at its stage's memory peak, one
activation layout at a time; stages are even. Only simulation tells the true need. Where options
use granted tiers, layers take them in order, each leaving the later ones what they need at least.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...spec.schedules.stage_order import chunk_location
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision
from ..dynamic_programming.stage_partition import even_boundaries
from ..space.memory_budget import Budget
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Bools
from ..tables.option_table import OptionTable
from .heuristic import TryDecision


class MinMemoryPlan(NamedTuple):
    """A decision, and the estimated bytes of its fullest stage."""

    peak_bytes: float
    decision: Decision


class MinMemory:
    """Plans of minimum memory.

    Args:
        tables: options of every layer of a shape.
        tier_budget: bytes of each granted tier.
    """

    def __init__(
        self, tables: Callable[[PipelineShape], list[OptionTable]], tier_budget: Budget = ()
    ) -> None:
        self._tables = tables
        self._tier_budget = tier_budget
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
            plans = (_in_layout(shape, tables, layout, self._tier_budget) for layout in layouts)
            self._plans[shape] = min(plans, key=lambda plan: plan.peak_bytes)
        return self._plans[shape]


def _in_layout(
    shape: PipelineShape, tables: list[OptionTable], layout: int, tier_budget: Budget
) -> MinMemoryPlan:
    boundaries = even_boundaries(len(tables), shape)
    in_flight = [sum(shape.first_in_flight(s)) / shape.chunks for s in range(shape.stages)]
    stage_bytes = [0.0] * shape.stages
    strategies: list[LayerStrategy] = []
    tiers = _TierRoom(shape, tables, boundaries, in_flight, tier_budget)
    cache: dict[tuple[object, ...], tuple[float, int]] = {}
    for position in range(shape.positions):
        stage, _ = chunk_location(shape.kind, position, shape.stages)
        for table in tables[boundaries[position] : boundaries[position + 1]]:
            fits = tiers.fitting(stage, table)
            key = (id(table), in_flight[stage], None if fits is None else fits.tobytes())
            if key not in cache:
                cache[key] = _smallest(table, in_flight[stage], layout, fits)
            size, row = cache[key]
            tiers.take(stage, table, row)
            stage_bytes[stage] += size
            strategies.append(table.strategies[row])
    return MinMemoryPlan(max(stage_bytes), Decision(shape, tuple(boundaries), tuple(strategies)))


class _TierRoom:
    """Bytes left on granted tiers, by stage, for the layers to come."""

    def __init__(
        self,
        shape: PipelineShape,
        tables: list[OptionTable],
        boundaries: list[int],
        in_flight: list[float],
        tier_budget: Budget,
    ) -> None:
        self._in_flight = in_flight
        self._left = np.repeat(np.array(tier_budget)[:, None], shape.stages, axis=1)
        if not tier_budget:
            return
        for position in range(shape.positions):
            stage, _ = chunk_location(shape.kind, position, shape.stages)
            for table in tables[boundaries[position] : boundaries[position + 1]]:
                self._left[:, stage] -= table.tier_bytes_at(in_flight[stage]).min(axis=1)

    def fitting(self, stage: int, table: OptionTable) -> Bools | None:
        """Options of the next layer of a stage that fit; None: all may be taken."""
        tier_bytes = table.tier_bytes_at(self._in_flight[stage])
        if not tier_bytes.any():
            return None
        room = self._left[:, stage] + tier_bytes.min(axis=1)
        fits: Bools = (tier_bytes <= room[:, None]).all(axis=0)
        return fits if fits.any() else None

    def take(self, stage: int, table: OptionTable, row: int) -> None:
        """Count the option that a layer takes."""
        tier_bytes = table.tier_bytes_at(self._in_flight[stage])
        if tier_bytes.any():
            self._left[:, stage] -= tier_bytes[:, row] - tier_bytes.min(axis=1)


def _smallest(
    table: OptionTable, in_flight: float, layout: int, fits: Bools | None
) -> tuple[float, int]:
    """Bytes and row of the smallest option that fits tiers; of any layout without this one."""
    bytes_ = table.bytes_at(in_flight)
    if fits is not None:
        bytes_ = np.where(fits, bytes_, np.inf)
    in_layout = np.where(table.layouts == layout, bytes_, np.inf)
    if np.isfinite(in_layout).any():
        bytes_ = in_layout
    row = int(bytes_.argmin())
    return float(bytes_[row]), row
