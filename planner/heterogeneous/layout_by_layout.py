"""Good plans of a shape over several device groups: layer search, uneven cuts, then simulation.

As :mod:`layout_by_layout`, with one activation layout for each kind of place along the pipeline
and cuts
in proportion to what the stages get done. The best plan found is then changed a layer at a time
across each edge between stages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...spec.report.report import MemoryRow
from ..candidates.evaluator import Decision, Outcome
from ..dynamic_programming.layer_search import LayerSearch
from ..heuristics.layout_by_layout import overflow_bytes, size_decision
from ..space.pipeline_shape import PipelineShape
from ..tables.option_table import OptionTable
from .enumeration import StageTables
from .joint_table import joint_table
from .uneven_partition import uneven_partition, weighted_boundaries

ATTEMPTS = 8
EPSILON = 1e-12
LAYOUTS_EACH, LAYOUTS = 2, 4
"""Activation layouts tried for one kind of place, and together in a shape."""
MOST_EDGES = 16
"""Pipelines of more chunks are not improved an edge at a time."""
TryHeterogeneous = Callable[[Decision], Outcome | None]
ExcessBytes = Callable[[MemoryRow], float]


class StagePlan(NamedTuple):
    """What is known of the stages of a shape.

    ``tables`` of every layer on each stage; ``budgets``: live bytes by stage and class;
    ``shares``: layers that each should hold, in fractions.
    """

    tables: Sequence[StageTables]
    budgets: Sequence[Sequence[float]]
    shares: Sequence[float]


class _Stages:
    """Layer searches of the stages of a shape under chosen layouts."""

    def __init__(
        self, shape: PipelineShape, layer_classes: tuple[int, ...], known: StagePlan
    ) -> None:
        self.shape, self.layer_classes, self.known = shape, layer_classes, known
        self.budgets = [min(each) for each in known.budgets]
        self._searches: dict[tuple[object, ...], LayerSearch] = {}

    def searches(self, layouts: Sequence[int]) -> list[LayerSearch] | None:
        """One of each stage; None where a stage has no options for some layer."""
        found = []
        for stage, layout in enumerate(layouts):
            held = sum(self.shape.first_in_flight(stage)) / self.shape.chunks
            tables = self.known.tables[stage]
            key = (tuple(map(id, tables)), layout, held, tuple(self.known.budgets[stage]))
            if key not in self._searches:
                chosen = {}
                for kind in set(self.layer_classes):
                    own = tables[self.layer_classes.index(kind)]
                    if own is None:
                        return None
                    joined = joint_table(own, self.known.budgets[stage])
                    chosen[kind] = in_layout(joined, layout)
                self._searches[key] = LayerSearch(chosen, held)
            found.append(self._searches[key])
        return found


def in_layout(table: OptionTable, layout: int) -> OptionTable:
    """The options with this layout, or all of them where the layer has none."""
    rows = table.layouts == layout
    return table.only(rows) if bool(np.any(rows)) else table


class HeterogeneousLayouts:
    """Searches shapes for plans worth simulating.

    Args:
        layer_classes: the kind of every layer.
        excess_bytes: how far a simulated class of ranks is over what it may reserve.
    """

    def __init__(self, layer_classes: tuple[int, ...], excess_bytes: ExcessBytes) -> None:
        self.layer_classes = layer_classes
        self.excess_bytes = excess_bytes

    def search(self, shape: PipelineShape, known: StagePlan, attempt: TryHeterogeneous) -> None:
        """Try the best plan of each promising choice of layouts of a shape, then its neighbours."""
        stages = _Stages(shape, self.layer_classes, known)
        best: tuple[float, Outcome, list[LayerSearch], list[float]] | None = None
        for layouts in self._layouts(shape, known):
            searches = stages.searches(layouts)
            if searches is None:
                continue
            budgets = list(stages.budgets)
            outcome = self._fit(shape, searches, budgets, known, attempt)
            if outcome is not None and outcome.feasible:
                found = (outcome.step_time_s, outcome, searches, budgets)
                best = found if best is None or found[0] < best[0] else best
        if best is not None and shape.positions <= MOST_EDGES:
            self._improve(shape, best[1], best[2], best[3], attempt)

    def _layouts(self, shape: PipelineShape, known: StagePlan) -> list[list[int]]:
        """Layouts of the stages: those of a place type alike, the likely fastest first."""
        sorts = [tuple((p.group, p.devices) for p in place) for place in shape.places]
        ranked = {}
        for stage, sort in enumerate(sorts):
            if sort not in ranked:
                ranked[sort] = self._ranked(shape, stage, known)
        order = list(ranked)
        choices = itertools.product(*[ranked[sort] for sort in order])
        chosen = sorted(choices, key=lambda each: sum(place for place, _ in each))[:LAYOUTS]
        return [[dict(zip(order, each, strict=True))[sort][1] for sort in sorts] for each in chosen]

    def _ranked(self, shape: PipelineShape, stage: int, known: StagePlan) -> list[tuple[int, int]]:
        """(place, layout) of a stage's likely fastest layouts for its share of the layers."""
        main = len(self.layer_classes) // 2
        own = known.tables[stage][main]
        if own is None:
            return [(0, 0)]
        table = joint_table(own, known.budgets[stage])
        held = sum(shape.first_in_flight(stage)) / shape.chunks
        needs = table.bytes_at(held) * max(1.0, known.shares[stage])
        estimated_s = np.where(needs <= min(known.budgets[stage]), table.step_estimate_s, np.inf)
        rank = []
        for layout in sorted(set(table.layouts.tolist())):
            rows = table.layouts == layout
            rank.append((float(estimated_s[rows].min()), float(needs[rows].min()), layout))
        return [(n, layout) for n, (_, _, layout) in enumerate(sorted(rank)[:LAYOUTS_EACH])]

    def _fit(
        self,
        shape: PipelineShape,
        searches: list[LayerSearch],
        budgets: list[float],
        known: StagePlan,
        attempt: TryHeterogeneous,
    ) -> Outcome | None:
        """Decide and simulate, with lower budgets where a device overflows."""
        for _ in range(ATTEMPTS):
            boundaries = self._cuts(shape, searches, budgets, known)
            made = boundaries and size_decision(
                shape, self.layer_classes, searches, budgets, boundaries
            )
            if not made:
                return None
            decision, stage_bytes = made
            outcome = attempt(decision)
            if outcome is None or outcome.feasible:
                return outcome
            over = [0.0] * shape.stages
            for row in outcome.simulation.memory:
                if self.excess_bytes(row) > 0:
                    more = overflow_bytes(row, self.excess_bytes)
                    scale = budgets[row.stage] / max(1, row.capacity_bytes)
                    over[row.stage] = max(over[row.stage], more * max(1.0, scale))
            for stage, excess in enumerate(over):
                if excess > 0:
                    below = stage_bytes[stage] * (1 - EPSILON)
                    budgets[stage] = min(budgets[stage] - excess, below)
        return None

    def _cuts(
        self,
        shape: PipelineShape,
        searches: list[LayerSearch],
        budgets: list[float],
        known: StagePlan,
    ) -> list[int] | None:
        if shape.chunks > 1:
            weights = [0.0] * shape.positions
            for stage in range(shape.stages):
                for chunk in range(shape.chunks):
                    weights[shape.position(stage, chunk)] = known.shares[stage]
            return weighted_boundaries(len(self.layer_classes), weights)
        seen: dict[tuple[int, int, int], float] = {}

        def seconds(stage: int, start: int, stop: int) -> float:
            key = (stage, start, stop)
            if key not in seen:
                own = searches[stage].best_seconds(self.layer_classes[start:stop], budgets[stage])
                seen[key] = own
            return seen[key]

        return uneven_partition(len(self.layer_classes), known.shares, seconds)

    def _improve(
        self,
        shape: PipelineShape,
        best: Outcome,
        searches: list[LayerSearch],
        budgets: list[float],
        attempt: TryHeterogeneous,
    ) -> None:
        """Move one layer over an edge between stages for as long as that is faster."""
        better = True
        while better:
            better = False
            for edge, step in itertools.product(range(1, shape.positions), (-1, 1)):
                boundaries = list(best.decision.boundaries)
                boundaries[edge] += step
                if not boundaries[edge - 1] < boundaries[edge] < boundaries[edge + 1]:
                    continue
                made = size_decision(shape, self.layer_classes, searches, budgets, boundaries)
                outcome = made and attempt(made.decision)
                if outcome and outcome.feasible and outcome.step_time_s < best.step_time_s:
                    best, better = outcome, True
