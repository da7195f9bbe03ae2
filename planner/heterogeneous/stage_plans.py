"""The plans of a shape over several device groups, as enumeration asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ..candidates.evaluator import Decision
from ..dynamic_programming.enumeration import all_boundaries
from ..space.pipeline_shape import PipelineShape
from .enumeration import StageTables, bounded_stage_plans, plan_count
from .shape_costs import HeterogeneousCosts


class HeterogeneousPlans:
    """The plans of a shape.

    Args:
        costs: of the shapes.
        shape: whose plans they are.
    """

    def __init__(self, costs: HeterogeneousCosts, shape: PipelineShape) -> None:
        self._layers = len(costs.layer_classes)
        self._shape = shape
        self._tables: list[StageTables] = costs.tables(shape)
        self._budgets = costs.budgets(shape)

    @cached_property
    def count(self) -> int:
        """Number of plans."""
        return plan_count(self._shape, self._tables)

    @property
    def is_enumerable(self) -> bool:
        """True: the number of plans is the only limit."""
        return True

    def boundaries(self) -> Iterator[tuple[int, ...]]:
        """Every partition of the layers."""
        return all_boundaries(self._layers, self._shape.positions)

    def bounded(
        self, boundaries: tuple[int, ...], limit_s: float
    ) -> Iterator[tuple[float, Decision]]:
        """Plans with these boundaries whose bound is below ``limit_s``, by growing bound."""
        return bounded_stage_plans(self._shape, boundaries, self._tables, self._budgets, limit_s)
