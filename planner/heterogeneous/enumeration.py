"""Enumeration of a small shape over several device groups, by growing bound.

As ``dynamic_programming.enumeration``, with options, prices and memory of each stage's own device
groups; each group of a shared stage alone is a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from ..candidates.evaluator import Decision
from ..dynamic_programming.enumeration import all_boundaries, bounded_rank_class_plans
from ..space.pipeline_shape import PipelineShape
from .option_tables import StageTables
from .shape_costs import HeterogeneousCosts


def plan_count(shape: PipelineShape, tables: Sequence[StageTables]) -> int:
    """Number of plans of a shape: options multiplied, summed over partitions."""
    layers = len(tables[0])
    ways = [1, *[0] * layers]
    for position in range(shape.positions):
        stage_tables = tables[shape.stage_of(position)]
        following = [0] * (layers + 1)
        for start in range(layers):
            product = ways[start]
            for stop in range(start, layers):
                if not product:
                    break
                options = stage_tables[stop]
                product *= len(options[0].strategies) if options is not None else 0
                following[stop + 1] += product
        ways = following
    return ways[layers]


def bounded_stage_plans(
    shape: PipelineShape,
    boundaries: tuple[int, ...],
    tables: Sequence[StageTables],
    budgets: Sequence[Sequence[float]],
    limit_s: float,
) -> Iterator[tuple[float, Decision]]:
    """Plans within boundaries and below ``limit_s``, by growing bound.

    Args:
        shape: the pipeline shape.
        boundaries: of its chunks.
        tables: of every layer on every stage.
        budgets: live bytes that certainly fit, by stage and rank class.
        limit_s: upper limit of bounds.
    """
    chosen = []
    for position in range(shape.positions):
        for layer in range(boundaries[position], boundaries[position + 1]):
            table = tables[shape.stage_of(position)][layer]
            if table is None:
                return
            chosen.append(table)
    device_only = [[(budget,) for budget in by_rank_class] for by_rank_class in budgets]
    yield from bounded_rank_class_plans(shape, boundaries, chosen, device_only, limit_s)


class HeterogeneousPlans:
    """Plans of a shape."""

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
        """Plans within boundaries and below ``limit_s``, by growing bound."""
        return bounded_stage_plans(self._shape, boundaries, self._tables, self._budgets, limit_s)
