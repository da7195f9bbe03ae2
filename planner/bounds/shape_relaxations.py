"""Bounds and estimates of the shapes of a request from chains of their passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...spec.schedules.stage_order import SPLIT_KINDS
from ..candidates.evaluator import Decision
from ..dynamic_programming.stage_partition import even_boundaries
from ..relaxation.free_cut_bounds import free_boundary_bound
from ..relaxation.pipeline_bounds import ROUNDING, BoundedPipeline, PipelineBounds
from ..space.pipeline_shape import PipelineShape
from ..tables.option_table import OptionTable, layout_number
from ..tables.pass_table import PassTable, PassTables, with_adjacent_layers

if TYPE_CHECKING:
    from .shape_costs import ShapeCosts

MAX_OPTIONS, MAX_BOUNDED_SHAPES = 400_000, 10_000
"""Options in tables of passes, and shapes that are bounded by them."""
MAX_STEPS_KEPT = 4
"""Relaxed steps that are kept, some twenty MiB each; others start anew if they are needed again."""
UNWANTED_S, STEP_UP = 1e7, 1.5
"""No bound is searched for beyond this; it is raised by so much at a time."""


class ShapeRelaxations:
    """Paths of the shapes of a request, each followed once.

    Args:
        costs: of the same request.

    ``options`` counts those in the tables of passes that were made.
    """

    def __init__(self, costs: ShapeCosts) -> None:
        self._costs = costs
        self._tables = PassTables(costs.rows)
        self._places: dict[tuple[object, ...], PipelineBounds] = {}
        self.options = 0
        self._cuts: dict[tuple[PipelineShape, float], BoundedPipeline] = {}
        self._bounds: dict[tuple[PipelineShape, float], float] = {}
        self._reached: dict[tuple[PipelineShape, float], float] = {}
        self._messages: dict[tuple[object, float], float] = {}

    def can_bound(self, shape: PipelineShape) -> bool:
        """Whether the shape was looked at, or still may be."""
        known = (shape, self._costs._live_budget(shape)) in self._bounds
        return known or (len(self._bounds) < MAX_BOUNDED_SHAPES and self._may_build_bounds(shape))

    def _may_build_bounds(self, shape: PipelineShape) -> bool:
        """Whether the tables of a shape are there, or may still be made."""
        return self._context_key(shape) in self._places or self.options < MAX_OPTIONS

    def aggregated(self, shape: PipelineShape) -> float:
        """Seconds of the passes of every plan of a shape at the least, at once for its place."""
        if not self._may_build_bounds(shape):
            return 0.0
        most = self._costs.request.cluster.device_count // shape.ranks
        place, budget = self._pipeline_bounds(shape), self._costs._live_budget(shape)
        boundaries = even_boundaries(len(place.layer_classes), shape) if shape.chunks > 1 else ()
        return place.aggregated_s(shape, boundaries, min(most, len(place.layer_classes)), budget)

    def bound(
        self, shape: PipelineShape, enough_s: float = float("inf"), adds_critical_paths: bool = True
    ) -> float:
        """Seconds of the passes of every plan of a shape at the least; 0 where nothing is known.

        Plans of several chunks a stage are those that are cut evenly.

        Args:
            shape: the shape.
            enough_s: a bound as high as this is high enough; up to it all is done that can be,
                and nothing once ``MAX_BOUNDED_SHAPES`` were bounded or tables have ``MAX_OPTIONS``.
            adds_critical_paths: whether steps are played for more chains than the closed ones.
        """
        key = (shape, self._costs._live_budget(shape))
        known_s = self._bounds.get(key, 0.0)
        if known_s < enough_s and self.can_bound(shape):
            if shape.stages == 1 or shape.chunks > 1:
                found_s = self._cut(shape).bound(enough_s, adds_critical_paths)
            else:
                found_s = self._free(shape, min(enough_s, UNWANTED_S), adds_critical_paths, known_s)
            known_s = self._bounds[key] = max(known_s, found_s)
        return known_s

    def _free(
        self, shape: PipelineShape, enough_s: float, adds_critical_paths: bool, known_s: float
    ) -> float:
        """A bound of all cuts of a shape, up to ``enough_s``.

        Where no plan is at hand it is raised once: no program has all runs of layers.
        """
        place, budget = self._pipeline_bounds(shape), self._costs._live_budget(shape)
        quick_s = self._costs._quick_bound(shape) - self._costs.work.end_s(shape)
        if quick_s >= enough_s:
            return quick_s
        if place.least_bytes > budget * shape.stages:
            return float("inf")
        reached_s = self._reached.get((shape, budget), 0.0)
        if not reached_s:
            reached_s = free_boundary_bound(place, shape, budget, quick_s, enough_s)
            if reached_s >= enough_s:  # as much as was asked for, and not all that is known
                return reached_s
            self._reached[shape, budget] = reached_s
        bound_s, within_s = 0.0, max(reached_s, known_s)
        while bound_s >= within_s or not bound_s:
            within_s = min(enough_s, STEP_UP * within_s)
            bound_s = min(
                place.relaxed(shape, budget, within_s, adds_critical_paths).seconds, within_s
            )
            if within_s >= enough_s or enough_s >= UNWANTED_S:
                break
        return max(reached_s, bound_s * (1 - ROUNDING))

    def estimate(self, shape: PipelineShape) -> float:
        """Seconds of about the best uniform plan, evenly cut; infinite where none fits."""
        return self._cut(shape).estimate_s

    def closed_chain_bound_s(self, shape: PipelineShape) -> float:
        """Least seconds of the passes of a shape in likely cuts, by its closed chains alone."""
        return self._cut(shape).bound(adds_critical_paths=False)

    def relaxed(self, shape: PipelineShape, enough_s: float) -> BoundedPipeline | None:
        """A shape in likely cuts, its step relaxed; None where that takes ``enough_s``."""
        cut = self._cut(shape)
        return cut if cut.bound(enough_s) < enough_s and cut.fractional is not None else None

    def _cut(self, shape: PipelineShape) -> BoundedPipeline:
        """A shape in likely cuts: even ones, or those with the least work in the fullest stage."""
        key = (shape, self._costs._live_budget(shape))
        found = self._cuts.pop(key, None)
        if found is None:
            place = self._pipeline_bounds(shape)
            boundaries = even_boundaries(len(place.layer_classes), shape)
            if shape.chunks == 1:
                boundaries = place.balanced_boundaries(shape, key[1]) or boundaries
            found = BoundedPipeline(place, shape, boundaries, key[1])
        self._cuts[key] = found  # the last one used is the last
        if len(self._cuts) > MAX_STEPS_KEPT:
            list(self._cuts.values())[-MAX_STEPS_KEPT - 1].forget()
        return found

    def uniform(self, shape: PipelineShape) -> Decision | None:
        """About the best uniform plan in likely cuts; None where none fits."""
        place, cut = self._pipeline_bounds(shape), self._cut(shape)
        rows = {} if cut.uniform is None else cut.uniform.rows
        if not rows:
            return None
        strategies = tuple(place.tables[k].strategies[rows[k]] for k in place.layer_classes)
        return Decision(shape, tuple(cut.boundaries), strategies)

    def tables(self, shape: PipelineShape) -> list[OptionTable]:
        """The options of every layer, their seconds as the chains of the shape weigh them."""
        place, paths = self._pipeline_bounds(shape), self._cut(shape).uniform
        shares = {} if paths is None else paths.shares_s
        known = {kind: _weighed(table, shares.get(kind)) for kind, table in place.tables.items()}
        return [known[kind] for kind in place.layer_classes]

    def _message_s(self, shape: PipelineShape, stage: int, peer: int, size: float) -> float:
        """Seconds of a message between two stages."""
        first, last = sorted((stage * shape.ranks, peer * shape.ranks))
        pricer = self._costs.pricer
        level = pricer.machine.level_between(first, last + shape.ranks - 1)
        key = (level, size)
        if key not in self._messages:
            self._messages[key] = pricer.message(int(size), level)
        return self._messages[key]

    def _context_key(self, shape: PipelineShape) -> tuple[object, ...]:
        costs = self._costs
        return (
            shape.ranks,
            costs._samples(shape),
            costs._link_span(shape),
            tuple(costs._tied_embeddings(shape)),
        )

    def _pipeline_bounds(self, shape: PipelineShape) -> PipelineBounds:
        costs, key = self._costs, self._context_key(shape)
        if key not in self._places:
            samples, tied, link_span = (
                costs._samples(shape),
                costs._tied_embeddings(shape),
                costs._link_span(shape),
            )
            splits = any(kind in SPLIT_KINDS for kind in costs.space.schedule_kinds)
            tables = {
                kind: self._tables.table(
                    layer,
                    costs.space.options(kind, shape.ranks, samples),
                    (shape.ranks, samples, link_span),
                    tied.get(layer, (layer,)),
                    splits,
                    shape.stages == 1,
                )
                for kind, layer in costs.space.first_of_class.items()
            }
            self.options += sum(len(table.strategies) for table in tables.values())
            slowdown = costs.pricer.stack.overlap_slowdown
            tables = with_adjacent_layers(tables, slowdown)
            self._places[key] = PipelineBounds(
                tables, costs.space.layer_classes, slowdown, self._message_s
            )
        return self._places[key]


def _weighed(table: PassTable, seconds: np.ndarray | None) -> OptionTable:
    nothing = np.zeros(len(table.strategies))
    return OptionTable(
        table.strategies,
        microbatch_s=nothing,
        step_bound_s=nothing,
        step_estimate_s=nothing if seconds is None else seconds,
        resident_bytes=table.resident_bytes,
        kept_bytes=table.kept_bytes,
        extra_bytes=table.accumulated_bytes,
        layouts=np.array([layout_number(s) for s in table.strategies], dtype=np.int64),
    )
