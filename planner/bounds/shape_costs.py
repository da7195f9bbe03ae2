"""What the shapes of a space cost: tables of layer options, proven bounds, estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...spec.model.towers import shared_tables
from ..candidates.evaluator import Evaluator
from ..dynamic_programming.enumeration import all_boundaries, boundary_count
from ..dynamic_programming.stage_partition import even_boundaries
from ..space.search_space import PipelineShape, SearchSpace
from ..tables.option_table import OptionTable, OptionTables
from .compute_bounds import ComputeBounds
from .knapsack_bounds import KnapsackBounds
from .shape_relaxations import ShapeRelaxations

MAX_BOUNDARIES = 1000
"""Cuts of a shape of a large model that are enumerated."""
MAX_BOUNDED, MAX_ESTIMATED = 16, 64
"""Widths and micro-batches for which a search makes tables of all options, and of usual ones."""

TableKey = tuple[int, int, tuple[int, ...], int, bool]
"""Ranks and micro-batches, layers whose parameters move with others', reach, overlapping passes."""


class ShapeCosts:
    """Costs of the shapes of a request, each found once.

    Args:
        evaluator: of the request; simulates its decisions once.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        request, simulator = evaluator.request, evaluator.simulator
        self.request = request
        self.space = SearchSpace(request)
        self.rows = evaluator.rows
        self.tables = OptionTables(self.rows)
        self.evaluator = evaluator
        self.pricer = simulator.pricer
        self.work = ComputeBounds(self.space, simulator.lowering, self.rows.works, simulator.pricer)
        self._relaxations = ShapeRelaxations(self)
        self._link_spans: dict[tuple[int, int], int] = {}
        self._choices: dict[tuple[int, int], int] = {}
        self._bounds: dict[TableKey, KnapsackBounds] = {}
        self._estimates_of: dict[TableKey, KnapsackBounds] = {}

    def _samples(self, shape: PipelineShape) -> int:
        """Samples of a micro-batch over a stage."""
        return self.request.workload.global_batch // shape.microbatches

    def _link_span(self, shape: PipelineShape) -> int:
        """How many link levels the groups of a stage cross."""
        key = (shape.ranks, shape.stages)
        if key not in self._link_spans:
            used = shape.ranks * shape.stages
            self._link_spans[key] = self.pricer.machine.link_span_of(shape.ranks, used)
        return self._link_spans[key]

    def _layer_tables(self, shape: PipelineShape, usual: bool = False) -> list[OptionTable]:
        """Options of every layer for a shape, in order; all of them, or the usual ones."""
        options = self.space.usual if usual else self.space.options
        samples = self._samples(shape)
        tied, link_span = self._tied_embeddings(shape), self._link_span(shape)
        place = (shape.ranks, samples, shape.microbatches)
        known: dict[tuple[int, tuple[int, ...] | None], OptionTable] = {}
        found = []
        for layer, kind in enumerate(self.space.layer_classes):
            key = (kind, tied.get(layer))
            if key not in known:
                strategies = options(kind, shape.ranks, samples)
                known[key] = self.tables.table(
                    layer,
                    strategies,
                    *place,
                    key[1],
                    link_span,
                    shape.overlaps_passes,
                    shape.stages == 1,
                )
            found.append(known[key])
        return found

    def _plan_count(self, shape: PipelineShape) -> int:
        """How many plans the shape has."""
        place = (shape.ranks, self._samples(shape))
        if place not in self._choices:
            sizes = (len(self.space.options(kind, *place)) for kind in self.space.layer_classes)
            self._choices[place] = math.prod(sizes)
        boundaries = (
            1
            if self._has_even_boundaries(shape)
            else boundary_count(len(self.space.layer_classes), shape)
        )
        return boundaries * self._choices[place]

    def _has_many_boundaries(self, shape: PipelineShape) -> bool:
        """Whether looking at every cut alone takes long."""
        many = boundary_count(len(self.space.layer_classes), shape) > MAX_BOUNDARIES
        return self.space.is_large and many and not self._has_even_boundaries(shape)

    def _has_even_boundaries(self, shape: PipelineShape) -> bool:
        """Whether the space has the shape with its even cut only."""
        return self.space.is_large and shape.chunks > 1

    def _all_boundaries(self, shape: PipelineShape) -> Iterator[tuple[int, ...]]:
        """Every cut of a shape that is in the space."""
        layers = len(self.space.layer_classes)
        if self._has_even_boundaries(shape):
            return iter([tuple(even_boundaries(layers, shape))])
        return all_boundaries(layers, shape.positions)

    def _tied_embeddings(self, shape: PipelineShape) -> dict[int, tuple[int, ...]]:
        """Layers that carry no parameters of their own, and the head that carries theirs.

        On one stage these are the tables that share the head's weight. On several a table behind
        the model's first layer shares it where a cut leaves both in one chunk, so it is certain
        of no parameters that it carries any, nor of the head that it carries others.
        """
        if not self.request.model.tie_embeddings:
            return {}
        ends = shared_tables(self.request.model)
        if shape.stages > 1:
            return {layer: () for layer in ends[:-1] if layer}
        return dict.fromkeys(ends[:-1], ()) | {ends[-1]: ends}

    def _live_budget(self, shape: PipelineShape) -> float:
        communicators = int(shape.stages * shape.ranks > 1) + (4 if shape.stages > 1 else 0)
        capacity = self.request.cluster.groups[0].memory.hbm_bytes
        stack = self.request.stack
        return self.evaluator.rule.live_budget_bytes(capacity, stack, communicators)

    def _shape_bounds(self, shape: PipelineShape, usual: bool = False) -> KnapsackBounds:
        known, key = self._estimates_of if usual else self._bounds, self._table_key(shape)
        if key not in known:
            counts: dict[int, tuple[int, OptionTable]] = {}
            for table in self._layer_tables(shape, usual):
                counts[id(table)] = (counts.get(id(table), (0, table))[0] + 1, table)
            known[key] = KnapsackBounds(list(counts.values()))
        return known[key]

    def _shape_bound(
        self, shape: PipelineShape, enough_s: float = float("inf"), adds_critical_paths: bool = True
    ) -> float:
        """A proven lower bound on every plan of a shape, from the tables of its layers.

        Once enough widths and micro-batches have tables, or enough shapes were bounded, the quick
        bound of the others stands: it is as sound, and a search of a large space proves little of
        them anyway.

        Args:
            shape: the shape.
            enough_s: a bound as high as this is high enough.
            adds_critical_paths: whether the steps of large models are played for their critical
            paths.
        """
        bound, end_s = self._quick_bound(shape), self.work.end_s(shape)
        if self.space.is_large:
            return max(
                bound, self._relaxations.bound(shape, enough_s - end_s, adds_critical_paths) + end_s
            )
        if self._table_key(shape) in self._bounds or len(self._bounds) < MAX_BOUNDED:
            own = self._shape_bounds(shape).bound(shape, self._live_budget(shape))
            bound = max(bound, own + end_s)
        if shape.stages == 1 or shape.chunks == 1:
            bound = max(
                bound,
                self._relaxations.bound(shape, enough_s - end_s, adds_critical_paths=False) + end_s,
            )
        return bound

    def _aggregated_bound(self, shape: PipelineShape) -> float:
        """A proven lower bound on every plan of a shape, from all stages taken together."""
        return self._relaxations.aggregated(shape) + self.work.end_s(shape)

    def _quick_bound(self, shape: PipelineShape) -> float:
        """A proven lower bound that is never above :meth:`_shape_bound` and needs no tables."""
        adds_to_tied = shape.stages == 1 and bool(self._tied_embeddings(shape))
        return self.work.bound(shape, adds_to_tied, self._link_span(shape))

    def _may_estimate(self, shape: PipelineShape) -> bool:
        """Whether the usual tables of a shape are there, or may still be made."""
        known = self._estimates_of
        return self._table_key(shape) in known or len(known) < MAX_ESTIMATED

    def _rough(self, shape: PipelineShape) -> float:
        """A step time to put shapes in order by: the least work, its bubble and uneven stages."""
        blocks = max(1, len(self.space.layers) - 2)
        uneven = shape.positions * math.ceil(blocks / shape.positions) / blocks
        return self._quick_bound(shape) * (1 + self._bubble(shape)) * uneven

    @staticmethod
    def _bubble(shape: PipelineShape) -> float:
        """About the share of idle time; a third where weight gradients fill the rest of it."""
        filled = 3 if shape.kind in ("zero_bubble", "zbv") else 1
        return (shape.stages - 1) / (shape.chunks * shape.microbatches * filled)

    def _table_key(self, shape: PipelineShape) -> TableKey:
        """What the tables of a shape depend on."""
        tied, link_span = tuple(self._tied_embeddings(shape)), self._link_span(shape)
        return (shape.ranks, shape.microbatches, tied, link_span, shape.overlaps_passes)

    def _estimate(self, shape: PipelineShape) -> float:
        """A likely step time of a shape's best plan among the usual ones."""
        held = [sum(shape.first_in_flight(s)) / shape.chunks for s in (0, shape.stages - 1)]
        budget = self._live_budget(shape)
        return self._shape_bounds(shape, usual=True).estimate(shape, budget, (held[0], held[1]))
