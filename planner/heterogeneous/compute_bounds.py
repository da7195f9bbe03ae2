"""Minimum layer seconds on a rank class, without sharding and memory."""

from __future__ import annotations

import math
from collections import Counter

from ...costmodel.simulation.overlapped_passes import min_overlapped_s
from ...costmodel.simulation.simulator import Simulator
from ...spec.recomputation import recompute_rank
from ...spec.strategy import LayerStrategy
from ..space.pipeline_shape import PipelineShape
from .fill_drain_bounds import fill_drain_bound_s
from .option_tables import StageOptions
from .stage_classes import StageClass, StageClasses, StageClassTable


class StageComputeBounds:
    """Quick bounds of shapes over several device groups."""

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
        self._split_key = simulator.lowering.split_key
        space = options.whole
        self._counts = Counter(space.layer_classes)
        self._main = max(self._counts, key=lambda number: self._counts[number])
        self._seconds: dict[tuple[object, ...], float] = {}
        self._bounds: dict[tuple[object, ...], float] = {}
        self._stages: dict[tuple[StageClasses, bool, bool], list[float]] = {}

    def bound_s(self, shape: PipelineShape) -> float:
        """Minimum seconds of every plan of a shape."""
        fills = shape.fills_and_drains
        key = (shape.places, shape.microbatches, fills, shape.overlaps_passes)
        if key not in self._bounds:
            tied = len(self._shared) > 1 and shape.stages == 1
            stages = [self._stage(c, tied, shape.overlaps_passes) for c in self._classes.of(shape)]
            layer_classes = [
                (count, [seconds[number] for seconds in stages])
                for number, count in enumerate(self._counts.values())
            ]
            self._bounds[key] = fill_drain_bound_s(layer_classes, shape.microbatches, fills)
        return self._bounds[key] + self._simulator.pricer.step_s

    def stage_seconds(self, shape: PipelineShape) -> list[float]:
        """Minimum seconds of a commonest-class layer on every stage."""
        number = list(self._counts).index(self._main)
        return [
            self._stage(c, False, shape.overlaps_passes)[number] for c in self._classes.of(shape)
        ]

    def _stage(self, stage: StageClasses, tied: bool, overlaps_passes: bool) -> list[float]:
        """Minimum seconds of every class on the main one's slowest ranks."""
        key = (stage, tied, overlaps_passes)
        if key not in self._stages:
            slowest = max(
                stage, key=lambda c: self._least(self._main, stage, c, False, overlaps_passes)
            )
            first = self._options.whole.layer_classes[0]
            self._stages[key] = [
                self._least(c, stage, slowest, tied and c == first, overlaps_passes)
                for c in self._counts
            ]
        return self._stages[key]

    def _least(
        self,
        layer_class: int,
        stage: StageClasses,
        rank_class: StageClass,
        adds_to_tied: bool,
        overlaps_passes: bool,
    ) -> float:
        """Minimum seconds over all splits, each with its minimum recomputation."""
        groups = tuple((c.own, c.samples) for c in stage)
        key = (layer_class, groups, rank_class, adds_to_tied, overlaps_passes)
        if key not in self._seconds:
            splits: dict[tuple[object, ...], LayerStrategy] = {}
            for s in self._options.strategies(layer_class, stage):
                split = self._split_key(s)[:-1]
                least = splits.get(split)
                if least is None or recompute_rank(s.recompute) < recompute_rank(least.recompute):
                    splits[split] = s
            self._seconds[key] = min(
                (
                    self._pass_s(layer_class, s, rank_class, adds_to_tied, overlaps_passes)
                    for s in splits.values()
                ),
                default=math.inf,
            )
        return self._seconds[key]

    def _pass_s(
        self,
        layer_class: int,
        strategy: LayerStrategy,
        rank_class: StageClass,
        adds_to_tied: bool,
        overlaps_passes: bool,
    ) -> float:
        ranks, samples = rank_class.own, rank_class.samples
        replicas = strategy.data_parallel(ranks)
        context = (rank_class.group, rank_class.link_span, replicas, samples)
        split = self._split_key(strategy)
        key = (layer_class, split, ranks, *context, adds_to_tied, overlaps_passes)
        if key not in self._seconds:
            index = self._options.whole.first_of_class[layer_class]
            work = self._options.works.of(index, strategy, ranks, samples, adds_to_tied)
            pricer = self._classes.pricer(rank_class)
            hides = overlaps_passes and pricer.hides_sharding
            passes = (work.forward, work.backward(accumulates=False))
            self._seconds[key] = sum(min_overlapped_s(pricer.chained(p), hides) for p in passes)
        return self._seconds[key]
