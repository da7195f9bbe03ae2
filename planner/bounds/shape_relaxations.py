"""Bounds and estimates of shapes from chains of passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...costmodel.pricing.pricer import Pricer
from ...spec.schedules.stage_order import SPLIT_KINDS
from ..candidates.evaluator import Decision
from ..dynamic_programming.stage_partition import even_boundaries
from ..relaxation.aggregated_bounds import ROUNDING
from ..relaxation.free_cut_bounds import free_boundary_bound
from ..relaxation.pipeline_bounds import BoundedPipeline, PipelineBounds
from ..space.memory_budget import Budget
from ..space.pipeline_shape import PipelineShape
from ..space.search_space import SearchSpace
from ..tables.fetch_columns import with_neighbors
from ..tables.layer_costs import LayerCosts, StageContext
from ..tables.option_table import OptionTable, layout_number
from ..tables.pass_table import PassTable, PassTables
from .shape_context import ShapeContexts

MAX_OPTIONS, MAX_BOUNDED_SHAPES = 400_000, 10_000
"""Options in tables of passes, and shapes that are bounded by them."""
MAX_STEPS_KEPT = 4
"""Relaxed steps that are kept, some twenty MiB each; others start anew if they are needed again."""
UNWANTED_S, STEP_UP = 1e7, 1.5
"""No bound is searched for beyond this; it is raised by so much at a time."""


class ShapeRelaxations:
    """Relaxed steps of the shapes of a request, each solved once.

    Args:
        space: legal strategies and shapes.
        rows: costs of the layers.
        pricer: prices on the machine.
        contexts: stage contexts of the shapes.
        quick_s: proven bound on the passes of a shape, without tables.

    ``options`` counts those in the pass tables built.
    """

    def __init__(
        self,
        space: SearchSpace,
        rows: LayerCosts,
        pricer: Pricer,
        contexts: ShapeContexts,
        quick_s: Callable[[PipelineShape], float],
    ) -> None:
        self._space = space
        self._pricer = pricer
        self._contexts = contexts
        self._quick_s = quick_s
        self._tables = PassTables(rows, contexts.tiers)
        self._pipelines: dict[tuple[object, ...], PipelineBounds] = {}
        self.options = 0
        self._cuts: dict[tuple[PipelineShape, Budget], BoundedPipeline] = {}
        self._bounds: dict[tuple[PipelineShape, Budget], float] = {}
        self._reached: dict[tuple[PipelineShape, Budget], float] = {}
        self._messages: dict[tuple[object, float], float] = {}

    def can_bound(self, shape: PipelineShape) -> bool:
        """Return whether the shape is bounded or may be."""
        is_bounded = self._key(shape) in self._bounds
        has_room = len(self._bounds) < MAX_BOUNDED_SHAPES
        return is_bounded or (has_room and self.may_build(shape))

    def may_build(self, shape: PipelineShape) -> bool:
        """Return whether a shape's tables exist or may be built."""
        return self._contexts.of(shape).key in self._pipelines or self.options < MAX_OPTIONS

    def aggregated(self, shape: PipelineShape) -> float:
        """Minimum seconds of all passes, with aggregated stage memory."""
        if not self.may_build(shape):
            return 0.0
        most = self._space.device_count // shape.ranks
        pipeline, budget = self.pipeline(shape), self._contexts.budget(shape)
        layers = len(pipeline.layer_classes)
        boundaries = even_boundaries(layers, shape) if shape.chunks > 1 else ()
        return pipeline.aggregated.bound_s(shape, boundaries, min(most, layers), budget)

    def bound(
        self, shape: PipelineShape, enough_s: float = float("inf"), adds_critical_paths: bool = True
    ) -> float:
        """Minimum seconds of all passes of every plan; 0 if unknown.

        With several chunks a stage, only even partitions count.

        Args:
            shape: the shape.
            enough_s: sufficient bound; no effort beyond it, nor after ``MAX_BOUNDED_SHAPES``
                shapes or ``MAX_OPTIONS`` options.
            adds_critical_paths: time steps for more chains than the closed ones.
        """
        key = self._key(shape)
        bound_s = self._bounds.get(key, 0.0)
        if bound_s < enough_s and self.can_bound(shape):
            if shape.stages == 1 or shape.chunks > 1:
                raised_s = self._cut(shape).bound(enough_s, adds_critical_paths)
            else:
                most_s = min(enough_s, UNWANTED_S)
                raised_s = self._free_boundaries(shape, most_s, adds_critical_paths, bound_s)
            bound_s = self._bounds[key] = max(bound_s, raised_s)
        return bound_s

    def _free_boundaries(
        self, shape: PipelineShape, enough_s: float, adds_critical_paths: bool, known_s: float
    ) -> float:
        """Bound over all partitions of a shape, up to ``enough_s``.

        Without an incumbent it is raised once: no program has all runs of layers.
        """
        pipeline, budget = self.pipeline(shape), self._contexts.budget(shape)
        quick_s = self._quick_s(shape)
        if quick_s >= enough_s:
            return quick_s
        if pipeline.least_bytes > budget[0] * shape.stages:
            return float("inf")
        reached_s = self._reached.get((shape, budget), 0.0)
        if not reached_s:
            reached_s = free_boundary_bound(pipeline, shape, budget, quick_s, enough_s)
            if reached_s >= enough_s:  # as much as was asked for, and not all that is known
                return reached_s
            self._reached[shape, budget] = reached_s
        bound_s, within_s = 0.0, max(reached_s, known_s)
        while bound_s >= within_s or not bound_s:
            within_s = min(enough_s, STEP_UP * within_s)
            relaxed = pipeline.relaxed(shape, budget, within_s, adds_critical_paths)
            bound_s = min(relaxed.seconds, within_s)
            if within_s >= enough_s or enough_s >= UNWANTED_S:
                break
        return max(reached_s, bound_s * (1 - ROUNDING))

    def estimate(self, shape: PipelineShape) -> float:
        """Approximate seconds of the best uniform plan; infinite if none fits."""
        return self._cut(shape).estimate_s

    def closed_chain_bound_s(self, shape: PipelineShape) -> float:
        """Minimum seconds of all passes within likely boundaries, by closed chains."""
        return self._cut(shape).bound(adds_critical_paths=False)

    def relaxed(self, shape: PipelineShape, enough_s: float) -> BoundedPipeline | None:
        """Relaxed step within likely boundaries; None if it takes ``enough_s``."""
        cut = self._cut(shape)
        return cut if cut.bound(enough_s) < enough_s and cut.fractional is not None else None

    def _cut(self, shape: PipelineShape) -> BoundedPipeline:
        """Pipeline with likely boundaries: even, or of minimum bottleneck."""
        key = self._key(shape)
        cut = self._cuts.pop(key, None)
        if cut is None:
            pipeline = self.pipeline(shape)
            boundaries = even_boundaries(len(pipeline.layer_classes), shape)
            if shape.chunks == 1:
                boundaries = pipeline.balanced_boundaries(shape, key[1]) or boundaries
            cut = BoundedPipeline(pipeline, shape, boundaries, key[1])
        self._cuts[key] = cut  # the last one used is the last
        if len(self._cuts) > MAX_STEPS_KEPT:
            list(self._cuts.values())[-MAX_STEPS_KEPT - 1].forget()
        return cut

    def uniform(self, shape: PipelineShape) -> Decision | None:
        """Approximate best uniform plan within likely boundaries; None if none fits."""
        pipeline, cut = self.pipeline(shape), self._cut(shape)
        rows = {} if cut.uniform is None else cut.uniform.rows
        if not rows:
            return None
        strategies = tuple(pipeline.tables[c].strategies[rows[c]] for c in pipeline.layer_classes)
        return Decision(shape, tuple(cut.boundaries), strategies)

    def tables(self, shape: PipelineShape) -> list[OptionTable]:
        """Option tables of every layer, with seconds weighted by the shape's chains."""
        pipeline, uniform = self.pipeline(shape), self._cut(shape).uniform
        shares = {} if uniform is None else uniform.shares_s
        weighted = {c: _weighted(table, shares.get(c)) for c, table in pipeline.tables.items()}
        return [weighted[layer_class] for layer_class in pipeline.layer_classes]

    def _message_s(self, shape: PipelineShape, stage: int, peer: int, size: float) -> float:
        first, last = sorted((stage * shape.ranks, peer * shape.ranks))
        level = self._pricer.machine.level_between(first, last + shape.ranks - 1)
        key = (level, size)
        if key not in self._messages:
            self._messages[key] = self._pricer.message(int(size), level)
        return self._messages[key]

    def _key(self, shape: PipelineShape) -> tuple[PipelineShape, Budget]:
        return (shape, self._contexts.budget(shape))

    def pipeline(self, shape: PipelineShape) -> PipelineBounds:
        """Bounds of all shapes with this one's stage options."""
        context = self._contexts.of(shape)
        if context.key not in self._pipelines:
            ranks, samples, link_span, tied = context
            splits = any(kind in SPLIT_KINDS for kind in self._space.schedule_kinds)
            tables = {
                layer_class: self._tables.table(
                    layer,
                    self._space.options(layer_class, ranks, samples),
                    StageContext(ranks, samples, link_span),
                    tied.get(layer, (layer,)),
                    splits,
                    shape.stages == 1,
                )
                for layer_class, layer in self._space.first_of_class.items()
            }
            self.options += sum(len(table.strategies) for table in tables.values())
            slowdown = self._pricer.stack.overlap_slowdown
            tables = with_neighbors(tables, self._space.layer_classes, slowdown)
            self._pipelines[context.key] = PipelineBounds(
                tables, self._space.layer_classes, slowdown, self._message_s
            )
        return self._pipelines[context.key]


def _weighted(table: PassTable, seconds: np.ndarray | None) -> OptionTable:
    zeros = np.zeros(len(table.strategies))
    return OptionTable(
        table.strategies,
        microbatch_s=zeros,
        step_bound_s=zeros,
        step_estimate_s=zeros if seconds is None else seconds,
        reductions_s=zeros,
        resident_bytes=table.resident_bytes,
        kept_bytes=table.kept_bytes,
        extra_bytes=table.accumulated_bytes,
        layouts=np.array([layout_number(s) for s in table.strategies], dtype=np.int64),
        resident_tier_bytes=table.resident_tier_bytes,
        kept_tier_bytes=table.kept_tier_bytes,
    )
