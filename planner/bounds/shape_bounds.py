"""Proven bounds and estimates of the step times of shapes."""

from __future__ import annotations

import math

from ..space.pipeline_shape import PipelineShape
from ..tables.option_table import OptionTable
from .knapsack_bounds import KnapsackBounds
from .quick_bounds import QuickBounds
from .shape_context import ShapeContexts
from .shape_relaxations import ShapeRelaxations
from .shape_tables import ShapeTables

MAX_BOUNDED, MAX_ESTIMATED = 16, 64
"""Widths and micro-batches for which a search makes tables of all options, and of usual ones."""

TableKey = tuple[int, int, tuple[int, ...], int, bool]
"""Ranks, micro-batches, layers with parameters in other layers, link span, overlapping passes."""


class ShapeBounds:
    """Bounds and estimates of shapes, each computed once."""

    def __init__(
        self,
        quick: QuickBounds,
        tables: ShapeTables,
        contexts: ShapeContexts,
        relaxations: ShapeRelaxations,
    ) -> None:
        self.quick = quick
        self.tables = tables
        self.contexts = contexts
        self.relaxations = relaxations
        self._space = tables.space
        self._bounds: dict[TableKey, KnapsackBounds] = {}
        self._estimates: dict[TableKey, KnapsackBounds] = {}

    def quick_s(self, shape: PipelineShape) -> float:
        """Proven lower bound without tables, never above :meth:`exact_s`."""
        return self.quick.step_s(shape)

    def aggregated_s(self, shape: PipelineShape) -> float:
        """Proven lower bound on every plan, with aggregated stage memory."""
        return self.relaxations.aggregated(shape) + self.quick.end_s(shape)

    def exact_s(
        self, shape: PipelineShape, enough_s: float = float("inf"), adds_critical_paths: bool = True
    ) -> float:
        """Proven lower bound on every plan of a shape, from option tables.

        Once enough tables were built or shapes bounded, the quick bound of the others stands: it
        is as sound, and a search of a large space proves little of them anyway.

        Args:
            shape: the shape.
            enough_s: a bound as high as this is high enough.
            adds_critical_paths: also time the steps of large models for their critical paths.
        """
        bound_s, end_s = self.quick_s(shape), self.quick.end_s(shape)
        if self._space.is_large:
            passes_s = self.relaxations.bound(shape, enough_s - end_s, adds_critical_paths)
            return max(bound_s, passes_s + end_s)
        if self._table_key(shape) in self._bounds or len(self._bounds) < MAX_BOUNDED:
            budget_bytes = self.contexts.live_budget_bytes(shape)
            knapsack_s = self._knapsack(self._bounds, shape, usual=False).bound(shape, budget_bytes)
            bound_s = max(bound_s, knapsack_s + end_s)
        if shape.stages == 1 or shape.chunks == 1:
            passes_s = self.relaxations.bound(shape, enough_s - end_s, adds_critical_paths=False)
            bound_s = max(bound_s, passes_s + end_s)
        return bound_s

    def rough_s(self, shape: PipelineShape) -> float:
        """Step time for ranking: minimum computation, bubble and uneven stages."""
        blocks = max(1, len(self._space.layers) - 2)
        uneven = shape.positions * math.ceil(blocks / shape.positions) / blocks
        return self.quick_s(shape) * (1 + _bubble(shape)) * uneven

    def may_estimate(self, shape: PipelineShape) -> bool:
        """Return whether a shape's usual tables exist or may be built."""
        return self._table_key(shape) in self._estimates or len(self._estimates) < MAX_ESTIMATED

    def estimate_s(self, shape: PipelineShape) -> float:
        """Likely step time of a shape's best plan among the usual options."""
        first, last = (
            sum(shape.first_in_flight(stage)) / shape.chunks for stage in (0, shape.stages - 1)
        )
        budget_bytes = self.contexts.live_budget_bytes(shape)
        knapsack = self._knapsack(self._estimates, shape, usual=True)
        return knapsack.estimate(shape, budget_bytes, (first, last))

    def _knapsack(
        self, cache: dict[TableKey, KnapsackBounds], shape: PipelineShape, usual: bool
    ) -> KnapsackBounds:
        key = self._table_key(shape)
        if key not in cache:
            counts: dict[int, tuple[int, OptionTable]] = {}
            for table in self.tables.usual(shape) if usual else self.tables.layers(shape):
                counts[id(table)] = (counts.get(id(table), (0, table))[0] + 1, table)
            cache[key] = KnapsackBounds(list(counts.values()))
        return cache[key]

    def _table_key(self, shape: PipelineShape) -> TableKey:
        context = self.contexts.of(shape)
        tied = tuple(context.tied)
        return (shape.ranks, shape.microbatches, tied, context.link_span, shape.overlaps_passes)


def _bubble(shape: PipelineShape) -> float:
    filled = 3 if shape.kind in ("zero_bubble", "zbv") else 1
    return (shape.stages - 1) / (shape.chunks * shape.microbatches * filled)
