"""Good plans over several device groups, layout by layout.

As ``heuristics.layout_by_layout``, with one activation layout for each stage type and boundaries
in proportion to the stages' rates. The best plan is then changed a layer at a time across each
stage boundary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...spec.report.report import MemoryRow
from ..candidates.evaluator import Outcome
from ..dynamic_programming.layer_search import LayerSearch
from ..heuristics.heuristic import TryDecision
from ..heuristics.layout_by_layout import SizedDecision, in_layout, overflow_bytes, size_decision
from ..space.pipeline_shape import PipelineShape
from .joint_table import joint_table
from .option_tables import StageTables
from .uneven_partition import uneven_partition, weighted_boundaries

ATTEMPTS = 8
EPSILON = 1e-12
LAYOUTS_EACH, LAYOUTS = 2, 4
"""Activation layouts tried for one type of stage, and together in a shape."""
MOST_EDGES = 16
"""Pipelines of more chunks are not improved a boundary at a time."""
ExcessBytes = Callable[[MemoryRow], float]


class StagePlan(NamedTuple):
    """Tables, memory and shares of the stages of a shape.

    ``tables``: of every layer on each stage. ``budgets``: live bytes by stage and rank class.
    ``shares``: target layers of each stage, in fractions.
    """

    tables: Sequence[StageTables]
    budgets: Sequence[Sequence[float]]
    shares: Sequence[float]


class _StageSearches:
    """Layer searches of a shape's stages under chosen layouts."""

    def __init__(
        self, shape: PipelineShape, layer_classes: tuple[int, ...], plan: StagePlan
    ) -> None:
        self._shape, self._layer_classes, self._plan = shape, layer_classes, plan
        self.budgets = [min(budgets) for budgets in plan.budgets]
        self._cache: dict[tuple[object, ...], LayerSearch] = {}

    def under(self, layouts: Sequence[int]) -> list[LayerSearch] | None:
        """One search a stage; None if a layer has no options there."""
        searches = []
        for stage, layout in enumerate(layouts):
            in_flight = sum(self._shape.first_in_flight(stage)) / self._shape.chunks
            tables, budgets = self._plan.tables[stage], self._plan.budgets[stage]
            key = (tuple(map(id, tables)), layout, in_flight, tuple(budgets))
            if key not in self._cache:
                options = {}
                for layer_class in set(self._layer_classes):
                    table = tables[self._layer_classes.index(layer_class)]
                    if table is None:
                        return None
                    options[layer_class] = in_layout(joint_table(table, budgets), layout)
                self._cache[key] = LayerSearch(options, in_flight)
            searches.append(self._cache[key])
        return searches


class HeterogeneousLayouts:
    """Layer search and uneven partition under a shape's promising layouts.

    Args:
        layer_classes: class of every layer.
        stage_plan: tables, budgets and shares of a shape; None without room.
        excess_bytes: bytes of a simulated rank class over its limit.
    """

    def __init__(
        self,
        layer_classes: tuple[int, ...],
        stage_plan: Callable[[PipelineShape], StagePlan | None],
        excess_bytes: ExcessBytes,
    ) -> None:
        self._layer_classes = layer_classes
        self._stage_plan = stage_plan
        self._excess_bytes = excess_bytes

    def search(self, shape: PipelineShape, attempt: TryDecision) -> None:
        """Try the best plan of each promising choice of layouts, then neighbors."""
        plan = self._stage_plan(shape)
        if plan is None:
            return
        stages = _StageSearches(shape, self._layer_classes, plan)
        best: tuple[float, Outcome, list[LayerSearch], list[float]] | None = None
        for layouts in self._layouts(shape, plan):
            searches = stages.under(layouts)
            if searches is None:
                continue
            budgets = list(stages.budgets)
            outcome = self._fit(shape, searches, budgets, plan, attempt)
            if outcome is not None and outcome.feasible:
                result = (outcome.step_time_s, outcome, searches, budgets)
                best = result if best is None or result[0] < best[0] else best
        if best is not None and shape.positions <= MOST_EDGES:
            self._improve(shape, best[1], best[2], best[3], attempt)

    def _layouts(self, shape: PipelineShape, plan: StagePlan) -> list[list[int]]:
        types = [tuple((p.group, p.devices) for p in placement) for placement in shape.places]
        ranked = {}
        for stage, stage_type in enumerate(types):
            if stage_type not in ranked:
                ranked[stage_type] = self._ranked(shape, stage, plan)
        order = list(ranked)
        choices = itertools.product(*[ranked[stage_type] for stage_type in order])
        chosen = sorted(choices, key=lambda choice: sum(rank for rank, _ in choice))[:LAYOUTS]
        return [[dict(zip(order, choice, strict=True))[t][1] for t in types] for choice in chosen]

    def _ranked(self, shape: PipelineShape, stage: int, plan: StagePlan) -> list[tuple[int, int]]:
        """(rank, layout) of a stage's likely fastest layouts for its share."""
        tables = plan.tables[stage][len(self._layer_classes) // 2]
        if tables is None:
            return [(0, 0)]
        table = joint_table(tables, plan.budgets[stage])
        in_flight = sum(shape.first_in_flight(stage)) / shape.chunks
        needs = table.bytes_at(in_flight) * max(1.0, plan.shares[stage])
        estimated_s = np.where(needs <= min(plan.budgets[stage]), table.step_estimate_s, np.inf)
        keys = []
        for layout in sorted(set(table.layouts.tolist())):
            rows = table.layouts == layout
            keys.append((float(estimated_s[rows].min()), float(needs[rows].min()), layout))
        return [(rank, layout) for rank, (*_, layout) in enumerate(sorted(keys)[:LAYOUTS_EACH])]

    def _fit(
        self,
        shape: PipelineShape,
        searches: list[LayerSearch],
        budgets: list[float],
        plan: StagePlan,
        attempt: TryDecision,
    ) -> Outcome | None:
        """Decide and simulate, with lower budgets after an overflow."""
        for _ in range(ATTEMPTS):
            boundaries = self._boundaries(shape, searches, budgets, plan)
            sized = boundaries and self._sized(shape, searches, budgets, boundaries)
            if not sized:
                return None
            decision, stage_bytes = sized
            outcome = attempt(decision)
            if outcome is None or outcome.feasible:
                return outcome
            over = [0.0] * shape.stages
            for row in outcome.simulation.memory:
                if self._excess_bytes(row) > 0:
                    more = overflow_bytes(row, self._excess_bytes)
                    scale = budgets[row.stage] / max(1, row.capacity_bytes)
                    over[row.stage] = max(over[row.stage], more * max(1.0, scale))
            for stage, excess in enumerate(over):
                if excess > 0:
                    below = stage_bytes[stage][0] * (1 - EPSILON)
                    budgets[stage] = min(budgets[stage] - excess, below)
        return None

    def _sized(
        self,
        shape: PipelineShape,
        searches: list[LayerSearch],
        budgets: list[float],
        boundaries: list[int],
    ) -> SizedDecision | None:
        device_only = [(budget,) for budget in budgets]
        return size_decision(shape, self._layer_classes, searches, device_only, boundaries)

    def _boundaries(
        self,
        shape: PipelineShape,
        searches: list[LayerSearch],
        budgets: list[float],
        plan: StagePlan,
    ) -> list[int] | None:
        if shape.chunks > 1:
            weights = [0.0] * shape.positions
            for stage in range(shape.stages):
                for chunk in range(shape.chunks):
                    weights[shape.position(stage, chunk)] = plan.shares[stage]
            return weighted_boundaries(len(self._layer_classes), weights)
        cache: dict[tuple[int, int, int], float] = {}

        def seconds(stage: int, start: int, stop: int) -> float:
            key = (stage, start, stop)
            if key not in cache:
                layer_classes = self._layer_classes[start:stop]
                cache[key] = searches[stage].best_seconds(layer_classes, (budgets[stage],))
            return cache[key]

        return uneven_partition(len(self._layer_classes), plan.shares, seconds)

    def _improve(
        self,
        shape: PipelineShape,
        best: Outcome,
        searches: list[LayerSearch],
        budgets: list[float],
        attempt: TryDecision,
    ) -> None:
        """Move layers over stage boundaries, one at a time, while faster."""
        better = True
        while better:
            better = False
            for edge, step in itertools.product(range(1, shape.positions), (-1, 1)):
                boundaries = list(best.decision.boundaries)
                boundaries[edge] += step
                if not boundaries[edge - 1] < boundaries[edge] < boundaries[edge + 1]:
                    continue
                sized = self._sized(shape, searches, budgets, boundaries)
                outcome = sized and attempt(sized.decision)
                if outcome and outcome.feasible and outcome.step_time_s < best.step_time_s:
                    best, better = outcome, True
