"""Least seconds of a layer on a class of ranks: its own work, without sharding and memory."""

from __future__ import annotations

import math
from collections import Counter

from ...costmodel.lowering.plan_lowering import split_key
from ...costmodel.simulation.overlapped_passes import min_overlapped_s, overlappable_terms
from ...costmodel.simulation.simulator import Simulator
from ...spec.choices import RECOMPUTES
from ...spec.strategy import LayerStrategy
from ..space.pipeline_shape import PipelineShape
from .fill_drain_bounds import fill_drain_bound_s
from .option_tables import StageOptions
from .stage_classes import StageClass, StageClasses, StageClassTable


class StageComputeBounds:
    """Quick bounds of shapes over several device groups.

    Args:
        options: strategies of layers on stages.
        classes: of ranks.
        simulator: of the request.
        shared: layers that share a table, which stand in one stage if there is one.
    """

    def __init__(
        self,
        options: StageOptions,
        classes: StageClassTable,
        simulator: Simulator,
        shared: tuple[int, ...],
    ) -> None:
        self._options = options
        self._classes = classes
        self._simulator = simulator
        self._shared = shared
        space = options.whole
        self._counts = Counter(space.layer_classes)
        self._main = max(self._counts, key=lambda kind: self._counts[kind])
        self._seconds: dict[tuple[object, ...], float] = {}
        self._bounds: dict[tuple[object, ...], float] = {}
        self._stages: dict[tuple[StageClasses, bool, bool], list[float]] = {}

    def bound_s(self, shape: PipelineShape) -> float:
        """Seconds that every plan of a shape takes at least."""
        fills = shape.fills_and_drains
        key = (shape.places, shape.microbatches, fills, shape.overlaps_passes)
        if key not in self._bounds:
            tied = len(self._shared) > 1 and shape.stages == 1
            each = [self._stage(c, tied, shape.overlaps_passes) for c in self._classes.of(shape)]
            layer_classes = [
                (count, [seconds[number] for seconds in each])
                for number, count in enumerate(self._counts.values())
            ]
            self._bounds[key] = fill_drain_bound_s(layer_classes, shape.microbatches, fills)
        return self._bounds[key] + self._simulator.pricer.step_s

    def stage_seconds(self, shape: PipelineShape) -> list[float]:
        """Least seconds of a layer of the commonest kind on every stage."""
        place = list(self._counts).index(self._main)
        return [
            self._stage(c, False, shape.overlaps_passes)[place] for c in self._classes.of(shape)
        ]

    def _stage(self, stage: StageClasses, tied: bool, overlaps_passes: bool) -> list[float]:
        """Least seconds of every kind of layer on the class that is slowest with the main kind."""
        key = (stage, tied, overlaps_passes)
        if key not in self._stages:
            slowest = max(
                stage, key=lambda held: self._least(self._main, stage, held, False, overlaps_passes)
            )
            first = self._options.whole.layer_classes[0]
            self._stages[key] = [
                self._least(kind, stage, slowest, tied and kind == first, overlaps_passes)
                for kind in self._counts
            ]
        return self._stages[key]

    def _least(
        self,
        kind: int,
        stage: StageClasses,
        held: StageClass,
        adds_to_tied: bool,
        overlaps_passes: bool,
    ) -> float:
        """Least seconds over all splits, each with the least recomputation that it may have."""
        key = (kind, tuple((c.own, c.samples) for c in stage), held, adds_to_tied, overlaps_passes)
        if key not in self._seconds:
            splits: dict[tuple[object, ...], LayerStrategy] = {}
            for s in self._options.strategies(kind, stage):
                split = split_key(s)[:-1]
                known = splits.get(split)
                if known is None or RECOMPUTES.index(s.recompute) < RECOMPUTES.index(
                    known.recompute
                ):
                    splits[split] = s
            self._seconds[key] = min(
                (
                    self._pass_s(kind, s, held, adds_to_tied, overlaps_passes)
                    for s in splits.values()
                ),
                default=math.inf,
            )
        return self._seconds[key]

    def _pass_s(
        self,
        kind: int,
        strategy: LayerStrategy,
        held: StageClass,
        adds_to_tied: bool,
        overlaps_passes: bool,
    ) -> float:
        place = (held.group, held.link_span, strategy.data_parallel(held.own), held.samples)
        key = (kind, split_key(strategy), held.own, *place, adds_to_tied, overlaps_passes)
        if key not in self._seconds:
            index = self._options.whole.first_of_class[kind]
            work = self._options.works.of(index, strategy, held.own, held.samples, adds_to_tied)
            pricer = self._classes.pricer(held)
            hides = overlappable_terms(pricer) if overlaps_passes else ()
            ways = (pricer.chained(way) for way in (work.forward, work.backward(accumulates=False)))
            self._seconds[key] = sum(min_overlapped_s(cost, hides) for cost in ways)
        return self._seconds[key]
