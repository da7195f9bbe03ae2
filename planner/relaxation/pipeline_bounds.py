"""Lower bounds of pipelines from the relaxation of their steps.

Every pass takes at least a sum over its layers (``pass_table``), and a step at least any chain of
its passes (``pass_chains``). The step's linear relaxation (``column_generation``) is the minimum
under both, where layers may mix options within each stage's memory. With free boundaries, possible
runs of layers are determined first (``stage_feasibility``); with fixed ones, a chain's minimum
work alone (``chain_bound``) is tried first. Before that, the passes of all stages together, memory
aggregated, bound all pipelines of a stage context at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ...costmodel.simulation.overlapped_passes import MAX_SLOWDOWN
from ..chains.chain_bound import chain_bound_s
from ..chains.fixed_cuts import FixedPipeline
from ..chains.pass_chains import Pipeline, chains
from ..chains.uniform_plans import MAX_TIMED_PASSES, UniformPlans
from ..dynamic_programming.stage_partition import partition
from ..space.in_flight import ONE_IN_FLIGHT
from ..space.memory_budget import Budget
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Bools, Floats
from ..tables.layer_position import LayerPositions
from ..tables.pass_table import PassTable
from .aggregated_bounds import ROUNDING, AggregatedBounds, AggregateKey
from .column_generation import ColumnGeneration, RelaxedBound
from .layer_groups import (
    LayerGroups,
    fixed_boundary_groups,
    free_boundary_groups,
)
from .restricted_master import FractionalOptions
from .stage_feasibility import StageFeasibility

MAX_ENFORCED_STAGES = 8
"""Stages, about, whose chains a relaxed step has from the start."""
ShapeMessageSeconds = Callable[[PipelineShape, int, int, float], float]
"""Seconds of a message of a shape, from one stage to another, of so many bytes."""


def stage_budgets(budget: Budget, stages: int) -> Floats:
    """The budget of a device for each stage, shape (memories, stages)."""
    return np.repeat(np.array(budget)[:, None], stages, axis=1)


class FractionalPlan(NamedTuple):
    """Layers of a relaxed step, by the options of its groups."""

    groups: LayerGroups
    mix: FractionalOptions


class PipelineBounds:
    """Bounds of the pipelines of a stage context.

    Args:
        tables: of each layer class.
        layer_classes: class of every layer.
        slowdown: factor of work and communication sharing the device.
        message_s: seconds of a message between two stages, by bytes.

    ``aggregated``: with the memory of all stages together. ``cache``: figures derived by other
    modules, by their keys.
    """

    def __init__(
        self,
        tables: Mapping[int, PassTable],
        layer_classes: Sequence[int],
        slowdown: float,
        message_s: ShapeMessageSeconds,
    ) -> None:
        self.tables, self.layer_positions = tables, LayerPositions(tables)
        self.layer_classes = tuple(layer_classes)
        self.main_class = Counter(self.layer_classes).most_common(1)[0][0]
        self.slowdown = min(slowdown, MAX_SLOWDOWN)
        self._message_s = message_s
        self.cache: dict[Hashable, Any] = {}
        self.aggregated = AggregatedBounds(self.layer_positions, self.layer_classes, self.slowdown)

    @property
    def least_bytes(self) -> float:
        """Bytes of all layers, each at its smallest, one micro-batch in flight."""
        least_bytes = {
            layer_class: float(table.bytes_at(ONE_IN_FLIGHT).min())
            for layer_class, table in self.tables.items()
        }
        return sum(least_bytes[layer_class] for layer_class in self.layer_classes)

    def message_s(self, shape: PipelineShape, stage: int, peer: int, size: float) -> float:
        """Seconds of a message of so many bytes between two stages."""
        return 0.0 if stage == peer else self._message_s(shape, stage, peer, size)

    def balanced_boundaries(self, shape: PipelineShape, budget: Budget) -> list[int] | None:
        """Boundaries of minimum bottleneck cost, one chunk a stage."""
        cost = self.aggregated.of(AggregateKey.of(shape, shape.stages, budget))[1]
        sums = list(
            accumulate((max(cost.seconds[k], 0.0) for k in self.layer_classes), initial=0.0)
        )
        return partition(len(self.layer_classes), shape.stages, lambda _, i, j: sums[j] - sums[i])

    def in_layout(self, layout: object) -> PipelineBounds:
        """Bounds within one activation layout, if a class has it."""
        tables = {}
        for layer_class, table in self.tables.items():
            mask: Bools = np.array([strategy.layout == layout for strategy in table.strategies])
            tables[layer_class] = table.only(mask) if mask.any() else table
        return PipelineBounds(tables, self.layer_classes, self.slowdown, self.message_s)

    def relaxed(
        self,
        shape: PipelineShape,
        budget: Budget,
        enough_s: float,
        adds_critical_paths: bool = True,
    ) -> RelaxedBound:
        """Relaxed step of a one-chunk pipeline, over all its boundaries.

        Args:
            shape: the pipeline.
            budget: of a device.
            enough_s: upper limit of plans of interest, in seconds.
            adds_critical_paths: True to time the step for more chains than the closed ones.

        Returns:
            A bound of plans below ``enough_s``, itself a bound of the others.
        """
        travel_s = self.least_travel_s(shape)
        arcs = StageFeasibility(
            self.layer_positions, self.layer_classes, shape, budget, travel_s[0]
        ).arcs(enough_s)
        if not arcs[0]:
            return RelaxedBound(enough_s, None, None)
        stages = shape.stages
        pipeline: Pipeline = (shape.kind, stages, shape.chunks, shape.microbatches)
        groups = free_boundary_groups(self.layer_positions, shape, arcs, travel_s)
        step = ColumnGeneration(groups, pipeline, self.slowdown, stage_budgets(budget, stages))
        interval = max(1, stages // MAX_ENFORCED_STAGES)
        enforced = tuple(dict.fromkeys((*range(0, stages, interval), stages - 1)))
        step.enforce(chains(pipeline, enforced))
        return step.bound(enough_s, adds_critical_paths and shape.passes <= MAX_TIMED_PASSES)

    def least_travel_s(self, shape: PipelineShape) -> Floats:
        """Minimum seconds of messages into each position, forward and backward.

        No stage sends the output of the last layer, often a head: next to nothing.
        """
        layer_classes = dict.fromkeys(self.layer_classes[:-1])
        size = min((float(self.tables[k].output_bytes.min()) for k in layer_classes), default=0.0)
        travel_s = np.zeros((2, shape.positions))
        for position in range(1, shape.positions):
            stages = shape.stage_of(position - 1), shape.stage_of(position)
            travel_s[0, position] = self.message_s(shape, *stages, size)
            travel_s[1, position - 1] = travel_s[0, position]
        return travel_s


class BoundedPipeline(FixedPipeline):
    """Pipeline with fixed boundaries, and its bound so far."""

    def __init__(
        self,
        bounds: PipelineBounds,
        shape: PipelineShape,
        boundaries: Sequence[int],
        budget: Budget,
    ) -> None:
        super().__init__(bounds.layer_positions, bounds.layer_classes, shape, boundaries)
        self._bounds, self.budget = bounds, budget
        self._best_s = 0.0
        self._unbounded_stages: list[int] = list(self._critical_stages())
        self._step: ColumnGeneration | None = None
        self._follows_all = False
        self.fractional: FractionalPlan | None = None

    def bound(self, enough_s: float = float("inf"), adds_critical_paths: bool = True) -> float:
        """Minimum seconds of all passes of every plan with these boundaries.

        Args:
            enough_s: a bound as high as this is high enough.
            adds_critical_paths: True to time the step for more chains than the closed ones.
        """
        while self._unbounded_stages and self._best_s < enough_s:
            self._best_s = max(self._best_s, self._stage_s(self._unbounded_stages.pop(0)))
        if self._best_s < enough_s and not self._can_fit:
            self._best_s = float("inf")
        if self._best_s < enough_s:
            last, *others = self._critical_stages()
            if self._step is None:
                self._step = self._new_step(self.budgets)
                self._step.enforce(chains(self.pipeline, (last,)))
                first_s = self._step.bound(enough_s, adds_critical_paths=False).seconds
                self._best_s = max(self._best_s, first_s)
            if self._best_s < enough_s and not self._follows_all:
                self._step.enforce(chains(self.pipeline, tuple(others)) if others else ())
                self._follows_all = True
            if self._best_s < enough_s:
                relaxed = self._step.bound(
                    enough_s, adds_critical_paths and self.shape.passes <= MAX_TIMED_PASSES
                )
                self._best_s = max(self._best_s, relaxed.seconds)
                if relaxed.mix is not None:
                    self.fractional = FractionalPlan(self._step.groups, relaxed.mix)
        return self._best_s * (1 - ROUNDING)

    def _stage_s(self, stage: int) -> float:
        """Minimum seconds of the chains of a stage, its layers within memory."""
        positions = [self.shape.position(stage, chunk) for chunk in range(self.shape.chunks)]
        peak_in_flight = dict(zip(positions, self.shape.peak_in_flight(stage), strict=True))
        limits = (peak_in_flight, self.budget, self._bounds.slowdown, self._travel_s)
        return max(chain_bound_s(self, chain, *limits) for chain in chains(self.pipeline, (stage,)))

    @cached_property
    def _travel_s(self) -> Floats:
        return self._bounds.least_travel_s(self.shape)

    @cached_property
    def _can_fit(self) -> bool:
        return bool((self._min_peak_bytes() <= np.array(self.budget)).all())

    def forget(self) -> None:
        """Drop all but the bound."""
        self._step, self._follows_all, self.fractional = None, False, None
        self.__dict__.pop("uniform", None)

    @cached_property
    def uniform(self) -> UniformPlans | None:
        """Its uniform plans; None if none can fit."""
        if not self._can_fit:
            return None
        return UniformPlans(
            self.layer_positions,
            self.layer_classes,
            self.shape,
            self.boundaries,
            self.budget,
            self._bounds.slowdown,
            partial(self._bounds.message_s, self.shape),
        )

    @property
    def budgets(self) -> Floats:
        """Bytes of each memory and stage."""
        return stage_budgets(self.budget, self.shape.stages)

    @property
    def estimate_s(self) -> float:
        """Approximate seconds of the best uniform plan; infinite if none fits."""
        uniform_s = float("inf") if self.uniform is None else self.uniform.estimate_s
        return max(uniform_s, self._best_s * (1 - ROUNDING))

    def in_layout(self, layout: object) -> BoundedPipeline:
        """The same pipeline in one activation layout, if a class has it."""
        return BoundedPipeline(
            self._bounds.in_layout(layout), self.shape, self.boundaries, self.budget
        )

    def relaxed(self, budgets: Floats, enough_s: float) -> tuple[float, FractionalPlan | None]:
        """Relaxed step within other budgets.

        Args:
            budgets: bytes of each memory and stage.
            enough_s: a bound as high as this is high enough.

        Returns:
            A bound and the layers; none if nothing fits.
        """
        step = self._new_step(budgets)
        step.enforce(chains(self.pipeline, self._critical_stages()))
        relaxed = step.bound(enough_s, adds_critical_paths=self.shape.passes <= MAX_TIMED_PASSES)
        mix = relaxed.mix
        return relaxed.seconds, None if mix is None else FractionalPlan(step.groups, mix)

    def _new_step(self, budgets: Floats) -> ColumnGeneration:
        groups = fixed_boundary_groups(self, partial(self._bounds.message_s, self.shape))
        step = ColumnGeneration(groups, self.pipeline, self._bounds.slowdown, budgets)
        for rows in self._bounds.aggregated.seeds:
            step.add_option([rows[group.layer_class] for group in groups.groups])
        return step
