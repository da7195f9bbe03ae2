"""Good plans of a shape by dynamic programming, layout by layout.

Layers of one layout (tensor-parallel degree, sequence parallelism) need no redistribution between
them; embedding and head may have their own. After a simulated overflow, the budget is lowered by
as much and the search repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...spec.report.report import MemoryRow
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision
from ..dynamic_programming.layer_search import LayerSearch
from ..dynamic_programming.stage_partition import even_boundaries, partition
from ..space.memory_budget import Budget
from ..space.search_space import PipelineShape
from ..tables.option_table import OptionTable
from .heuristic import TryDecision

ATTEMPTS, ATTEMPTS_LONG = 8, 3
LONG_PASSES = 10_000
"""Steps that take some ten milliseconds to simulate are tried less often."""
SLACK = 1.02
EPSILON = 1e-12


class SizedDecision(NamedTuple):
    """A decision, and the estimated bytes of each of its stages, by memory."""

    decision: Decision
    stage_bytes: list[Budget]


class LayoutByLayout:
    """Layer search and stage partition under each promising layout of a shape.

    Args:
        layer_classes: class of every layer.
        tables: options of every layer of a shape.
        budget: bytes of a device of a shape.
        excess_bytes: bytes of a simulated stage over its limit; 0 or less if it fits.
        layouts: activation layouts to try in a shape.
        memories: numbers of memories in budgets, by their tiers.
    """

    def __init__(
        self,
        layer_classes: tuple[int, ...],
        tables: Callable[[PipelineShape], list[OptionTable]],
        budget: Callable[[PipelineShape], Budget],
        excess_bytes: Callable[[MemoryRow], float],
        layouts: int,
        memories: Mapping[str, int],
    ) -> None:
        self._layer_classes = layer_classes
        self._tables = tables
        self._budget = budget
        self._memories = memories
        self._excess_bytes = excess_bytes
        self._most_layouts = layouts
        self._ranges: dict[tuple[int, int], int] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    def search(self, shape: PipelineShape, attempt: TryDecision) -> None:
        """Try the best plan of each promising layout of a shape."""
        tables = self._tables(shape)
        for layout in self._layouts(shape, tables):
            options = {
                layer_class: in_layout(tables[self._layer_classes.index(layer_class)], layout)
                for layer_class in set(self._layer_classes)
            }
            self._search_layout(shape, options, attempt)

    def _layouts(self, shape: PipelineShape, tables: list[OptionTable]) -> list[int]:
        table = tables[len(tables) // 2]
        in_flight = max(sum(shape.first_in_flight(s)) for s in (0, shape.stages - 1)) / shape.chunks
        shares = np.array(self._budget(shape))[:, None] * shape.stages / len(tables)
        memory = table.memory_at(in_flight)
        needs, fits = memory[0], (memory <= shares).all(axis=0)
        estimated_s = np.where(fits, table.step_estimate_s, np.inf)
        rank = {}
        for layout in sorted(set(table.layouts.tolist())):
            rows = table.layouts == layout
            rank[layout] = (float(estimated_s[rows].min()), float(needs[rows].min()), layout)
        return sorted(rank, key=lambda layout: rank[layout])[: self._most_layouts]

    def _search_layout(
        self, shape: PipelineShape, options: dict[int, OptionTable], attempt: TryDecision
    ) -> None:
        budgets = [list(self._budget(shape)) for _ in range(shape.stages)]
        tier_budget = tuple(budgets[0][1:])
        counts = (sum(shape.first_in_flight(s)) / shape.chunks for s in range(shape.stages))
        cache: dict[float, LayerSearch] = {}
        searches = [
            cache.setdefault(in_flight, LayerSearch(options, in_flight, tier_budget))
            for in_flight in counts
        ]
        for _ in range(ATTEMPTS_LONG if shape.passes > LONG_PASSES else ATTEMPTS):
            sized = self._decide(shape, searches, budgets)
            if sized is None:
                return
            outcome = attempt(sized.decision)
            if outcome is None or outcome.feasible:
                return
            for row in outcome.simulation.memory:
                over, memory = overflow_bytes(row, self._excess_bytes), self._memories.get(row.tier)
                if over > 0 and memory is not None:
                    # and below what was chosen, or the same plan would come again
                    below = sized.stage_bytes[row.stage][memory] * (1 - EPSILON)
                    budgets[row.stage][memory] = min(budgets[row.stage][memory] - over, below)

    def _decide(
        self, shape: PipelineShape, searches: list[LayerSearch], budgets: list[list[float]]
    ) -> SizedDecision | None:
        if shape.chunks == 1:
            return self._partition_stages(shape, searches, budgets)
        return self._partition_evenly(shape, searches, budgets)

    def _partition_stages(
        self, shape: PipelineShape, searches: list[LayerSearch], budgets: list[list[float]]
    ) -> SizedDecision | None:
        cache: dict[tuple[int, int], float] = {}

        def seconds(stage: int, start: int, stop: int) -> float:
            key = (stage, self._range_number(start, stop))
            if key not in cache:
                layer_classes = self._layer_classes[start:stop]
                cache[key] = searches[stage].best_seconds(layer_classes, tuple(budgets[stage]))
            return cache[key]

        boundaries = partition(len(self._layer_classes), shape.stages, seconds)
        if boundaries is None:
            return None
        return size_decision(shape, self._layer_classes, searches, budgets, boundaries)

    def _range_number(self, start: int, stop: int) -> int:
        """Number for the classes of layers start..stop-1, equal for equal sequences."""
        number = self._ranges.get((start, stop))
        if number is None:
            layer_classes = self._layer_classes[start:stop]
            number = self._numbers.setdefault(layer_classes, len(self._numbers))
            self._ranges[start, stop] = number
        return number

    def _partition_evenly(
        self, shape: PipelineShape, searches: list[LayerSearch], budgets: list[list[float]]
    ) -> SizedDecision | None:
        boundaries = even_boundaries(len(self._layer_classes), shape)
        return size_decision(shape, self._layer_classes, searches, budgets, boundaries)


def overflow_bytes(row: MemoryRow, excess_bytes: Callable[[MemoryRow], float]) -> float:
    """Bytes to cut from a stage's budget, with slack; at least 0.

    Args:
        row: simulated memory of the stage.
        excess_bytes: bytes over its limit; 0 or less if it fits.
    """
    if row.tier != "hbm":  # nothing is allocated there but what options say
        return max(excess_bytes(row), 0.0)
    return max(row.reserved_bytes * SLACK - row.capacity_bytes, excess_bytes(row), 0.0)


def size_decision(
    shape: PipelineShape,
    layer_classes: Sequence[int],
    searches: Sequence[LayerSearch],
    budgets: Sequence[Sequence[float]],
    boundaries: Sequence[int],
) -> SizedDecision | None:
    """Fastest strategies within boundaries; chunks share their stage's budget.

    Returns:
        None if a stage does not fit.
    """
    parts: dict[int, tuple[LayerStrategy, ...]] = {}
    stage_bytes: list[Budget] = []
    for stage in range(shape.stages):
        positions = [shape.position(stage, c) for c in range(shape.chunks)]
        classes = tuple(
            c for p in positions for c in layer_classes[boundaries[p] : boundaries[p + 1]]
        )
        choice = searches[stage].best(classes, tuple(budgets[stage]))
        if choice is None:
            return None
        stage_bytes.append(choice.bytes)
        offset = 0
        for p in positions:
            size = boundaries[p + 1] - boundaries[p]
            parts[p] = choice.strategies[offset : offset + size]
            offset += size
    strategies = tuple(s for p in range(shape.positions) for s in parts[p])
    return SizedDecision(Decision(shape, tuple(boundaries), strategies), stage_bytes)


def in_layout(table: OptionTable, layout: int) -> OptionTable:
    """Options with this layout, or all if the layer has none."""
    rows = table.layouts == layout
    return table.only(rows) if bool(np.any(rows)) else table
