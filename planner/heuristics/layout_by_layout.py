"""Good plans of a likely shape: layer search and stage partition, then simulation.

One activation layout (tensor-parallel degree, sequence parallelism) at a time, so that layers
need no moves between them; the ends of the model may have their own. Where the simulated plan
overflows a device, the budget is lowered by the overflow and the search repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...spec.report.report import MemoryRow
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision, Outcome
from ..dynamic_programming.layer_search import LayerSearch
from ..dynamic_programming.stage_partition import even_boundaries, partition
from ..space.search_space import PipelineShape
from ..tables.option_table import OptionTable

ATTEMPTS, ATTEMPTS_LONG = 8, 3
LONG_PASSES = 10_000
"""Steps that take some ten milliseconds to simulate are tried less often."""
SLACK = 1.02
EPSILON = 1e-12
TryDecision = Callable[[Decision], Outcome | None]


class SizedDecision(NamedTuple):
    """A decision, and the estimated bytes of each of its stages."""

    decision: Decision
    stage_bytes: list[float]


class LayoutByLayout:
    """Searches shapes for plans worth simulating.

    Args:
        layer_classes: the kind of every layer.
        live_budget: live bytes a device of a shape can hold.
        excess_bytes: how far a simulated stage is over what it may reserve; 0 or less if it fits.
        layouts: activation layouts to try in a shape.
    """

    def __init__(
        self,
        layer_classes: tuple[int, ...],
        live_budget: Callable[[PipelineShape], float],
        excess_bytes: Callable[[MemoryRow], float],
        layouts: int,
    ) -> None:
        self.layer_classes = layer_classes
        self.live_budget = live_budget
        self.excess_bytes = excess_bytes
        self.layouts = layouts
        self._ranges: dict[tuple[int, int], int] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    def search(self, shape: PipelineShape, tables: list[OptionTable], attempt: TryDecision) -> None:
        """Try the best plan of each promising layout of a shape."""
        for layout in self._layouts(shape, tables):
            chosen = {
                kind: _in_layout(tables[self.layer_classes.index(kind)], layout)
                for kind in set(self.layer_classes)
            }
            self._search_layout(shape, chosen, attempt)

    def _layouts(self, shape: PipelineShape, tables: list[OptionTable]) -> list[int]:
        """Layouts of the middle layers, the fastest that fit an even share of memory first."""
        table = tables[len(tables) // 2]
        held = max(sum(shape.first_in_flight(s)) for s in (0, shape.stages - 1)) / shape.chunks
        share = self.live_budget(shape) * shape.stages / len(tables)
        needs = table.bytes_at(held)
        estimated_s = np.where(needs <= share, table.step_estimate_s, np.inf)
        rank = {}
        for layout in sorted(set(table.layouts.tolist())):
            rows = table.layouts == layout
            rank[layout] = (float(estimated_s[rows].min()), float(needs[rows].min()), layout)
        return sorted(rank, key=lambda layout: rank[layout])[: self.layouts]

    def _search_layout(
        self, shape: PipelineShape, chosen: dict[int, OptionTable], attempt: TryDecision
    ) -> None:
        budgets = [self.live_budget(shape)] * shape.stages
        known: dict[float, LayerSearch] = {}
        searches = [
            known.setdefault(held, LayerSearch(chosen, held))
            for held in (sum(shape.first_in_flight(s)) / shape.chunks for s in range(shape.stages))
        ]
        for _ in range(ATTEMPTS_LONG if shape.passes > LONG_PASSES else ATTEMPTS):
            made = self._decide(shape, searches, budgets)
            if made is None:
                return
            outcome = attempt(made.decision)
            if outcome is None or outcome.feasible:
                return
            for row in outcome.simulation.memory:
                over = overflow_bytes(row, self.excess_bytes)
                if over > 0:  # and below what was chosen, or the same plan would come again
                    below = made.stage_bytes[row.stage] * (1 - EPSILON)
                    budgets[row.stage] = min(budgets[row.stage] - over, below)

    def _decide(
        self, shape: PipelineShape, searches: list[LayerSearch], budgets: list[float]
    ) -> SizedDecision | None:
        """Cuts and strategies with the least estimated bottleneck within the budgets."""
        if shape.chunks == 1:
            return self._partition_stages(shape, searches, budgets)
        return self._partition_evenly(shape, searches, budgets)

    def _partition_stages(
        self, shape: PipelineShape, searches: list[LayerSearch], budgets: list[float]
    ) -> SizedDecision | None:
        known: dict[tuple[int, int], float] = {}

        def seconds(stage: int, start: int, stop: int) -> float:
            key = (stage, self._range_number(start, stop))
            if key not in known:
                layer_classes = self.layer_classes[start:stop]
                known[key] = searches[stage].best_seconds(layer_classes, budgets[stage])
            return known[key]

        boundaries = partition(len(self.layer_classes), shape.stages, seconds)
        if boundaries is None:
            return None
        return size_decision(shape, self.layer_classes, searches, budgets, boundaries)

    def _range_number(self, start: int, stop: int) -> int:
        """A number for the kinds of layers start..stop-1, equal for equal sequences."""
        number = self._ranges.get((start, stop))
        if number is None:
            layer_classes = self.layer_classes[start:stop]
            number = self._numbers.setdefault(layer_classes, len(self._numbers))
            self._ranges[start, stop] = number
        return number

    def _partition_evenly(
        self, shape: PipelineShape, searches: list[LayerSearch], budgets: list[float]
    ) -> SizedDecision | None:
        """Virtual stages of equal size; the chunks of a stage share its budget."""
        boundaries = even_boundaries(len(self.layer_classes), shape)
        return size_decision(shape, self.layer_classes, searches, budgets, boundaries)


def overflow_bytes(row: MemoryRow, excess_bytes: Callable[[MemoryRow], float]) -> float:
    """How much less a stage should hold, a little more than it must; 0 where it fits.

    Args:
        row: the simulated memory of the stage.
        excess_bytes: how far it is over what it may reserve; 0 or less if it fits.
    """
    return max(row.reserved_bytes * SLACK - row.capacity_bytes, excess_bytes(row), 0.0)


def size_decision(
    shape: PipelineShape,
    layer_classes: Sequence[int],
    searches: Sequence[LayerSearch],
    budgets: Sequence[float],
    boundaries: Sequence[int],
) -> SizedDecision | None:
    """The fastest strategies for cuts; the chunks of a stage share its budget.

    Args:
        shape: the pipeline shape.
        layer_classes: the kind of every layer.
        searches: of the layers of each stage.
        budgets: bytes of each stage.
        boundaries: cut points of the chunks.

    Returns:
        None if a stage does not fit.
    """
    parts: dict[int, tuple[LayerStrategy, ...]] = {}
    stage_bytes: list[float] = []
    for stage in range(shape.stages):
        positions = [shape.position(stage, c) for c in range(shape.chunks)]
        own = tuple(k for p in positions for k in layer_classes[boundaries[p] : boundaries[p + 1]])
        choice = searches[stage].best(own, budgets[stage])
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


def _in_layout(table: OptionTable, layout: int) -> OptionTable:
    """The options with this layout, or all of them where the layer has none."""
    rows = table.layouts == layout
    return table.only(rows) if bool(np.any(rows)) else table
