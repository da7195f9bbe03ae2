"""Lower bounds of pipelines from the relaxation of their steps.

Every pass takes at least a sum over its layers (:mod:`pass_table`), and a step at least as long as
any chain of its passes (:mod:`pass_chains`). The step's linear relaxation (:mod:`relaxation`) is
the
least that all of that leaves, where layers may mix their options and each stage holds what it may.
Which runs of layers a stage may hold where cuts are free is found first (:mod:`stage_feasibility`).
A chain's least work alone (:mod:`chain_bound`) is asked first where cuts are fixed.
Where a pipeline is not looked at yet, the passes of all stages together, their memory pooled, bound
it at once with all others of its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

import numpy as np

from ...costmodel.lowering.stage_passes import PassKind
from ...costmodel.simulation.overlapped_passes import MAX_SLOWDOWN
from ...spec.schedules.passes import BackwardPart
from ...spec.schedules.stage_order import SPLIT_KINDS
from ..chains.chain_bound import chain_bound_s
from ..chains.fixed_cuts import FixedPipeline, Floats
from ..chains.pass_chains import Chain, Pipeline, chains, pass_counts
from ..chains.uniform_plans import MAX_TIMED_PASSES, UniformPlans
from ..dynamic_programming.stage_partition import partition
from ..space.in_flight import ONE_IN_FLIGHT
from ..space.pipeline_shape import PipelineShape
from ..tables.layer_position import LayerPositions
from ..tables.pass_kinds import kind_number
from ..tables.pass_table import INSIDE, WORK, PassTable
from .column_generation import ColumnGeneration, RelaxedBound
from .dual_prices import min_cost_by_class
from .layer_groups import (
    LayerGroups,
    aggregated_groups,
    fixed_boundary_groups,
    free_boundary_groups,
)
from .restricted_master import FractionalOptions
from .stage_feasibility import StageFeasibility

MAX_ENFORCED_STAGES = 8
"""Stages, about, whose own chains a relaxed step has from the start."""
ROUNDING = 1e-9
ShapeMessageSeconds = Callable[[PipelineShape, int, int, float], float]
"""Of a shape: seconds from one stage to another of a message of so many bytes."""


class FractionalPlan(NamedTuple):
    """The layers of a relaxed step, by the options of its cells."""

    groups: LayerGroups
    mix: FractionalOptions


class StageCost(NamedTuple):
    """A lower bound of a stage's step: seconds of a layer of each kind, and the rest."""

    seconds: Mapping[int, float]
    rest_s: float


class PipelineBounds:
    """Bounds of the pipelines of a place.

    Args:
        tables: of each layer kind.
        layer_classes: the kind of every layer.
        slowdown: factor of work and communication while they share the device.
        message_s: seconds of a message of so many bytes between two stages of a pipeline.

    ``seeds`` are options of each kind that are good in the place; ``kept`` is what others found out
    about the place, by names of theirs.
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
        self.main = Counter(self.layer_classes).most_common(1)[0][0]
        self.slowdown = min(slowdown, MAX_SLOWDOWN)
        self._message_s = message_s
        self.seeds: list[dict[int, int]] = []
        self.kept: dict[Hashable, Any] = {}
        self._aggregated: dict[tuple[int, int, float, bool], tuple[float, StageCost]] = {}

    @property
    def least_bytes(self) -> float:
        """What all layers need on their devices, each at its smallest, with one micro-batch."""
        least = {
            kind: float(table.bytes_at(ONE_IN_FLIGHT).min()) for kind, table in self.tables.items()
        }
        return sum(least[kind] for kind in self.layer_classes)

    def message_s(self, shape: PipelineShape, stage: int, peer: int, size: float) -> float:
        """Seconds of a message of so many bytes between two stages of a pipeline."""
        return 0.0 if stage == peer else self._message_s(shape, stage, peer, size)

    def balanced_boundaries(self, shape: PipelineShape, budget_bytes: float) -> list[int] | None:
        """Cuts of a pipeline of one chunk a stage whose fullest stage costs the least.

        Args:
            shape: the pipeline.
            budget_bytes: what a device may hold.
        """
        cost = self._aggregate(
            (shape.stages, shape.microbatches, budget_bytes, shape.overlaps_passes)
        )[1]
        sums = list(
            accumulate((max(cost.seconds[k], 0.0) for k in self.layer_classes), initial=0.0)
        )
        return partition(len(self.layer_classes), shape.stages, lambda _, i, j: sums[j] - sums[i])

    def in_layout(self, layout: object) -> PipelineBounds:
        """The bounds of options of one activation layout, where a kind has any."""
        tables = {}
        for kind, table in self.tables.items():
            like = np.array([strategy.layout == layout for strategy in table.strategies])
            tables[kind] = table.only(like) if like.any() else table
        return PipelineBounds(tables, self.layer_classes, self.slowdown, self.message_s)

    def aggregated_s(
        self, shape: PipelineShape, boundaries: Sequence[int], stages: int, budget_bytes: float
    ) -> float:
        """Seconds of the passes of a pipeline at the least, from bounds of its whole place.

        All stages together, their memory pooled, take so much; the first micro-batch goes forward
        through the model and the last one back; and where cuts are fixed the last stage waits for
        the layers before it, runs its own passes, and where backwards are whole waits for theirs.

        Args:
            shape: the pipeline.
            boundaries: cut points of its chunks, empty where they are free.
            stages: the most that pipelines of the place have: fewer hold less.
            budget_bytes: what a device may hold.
        """
        every_s, cost = self._aggregate(
            (stages, shape.microbatches, budget_bytes, shape.overlaps_passes)
        )
        forward, back = self._first_last_pass_s(shape)
        found = max(every_s / shape.stages, sum(forward[k] + back[k] for k in self.layer_classes))
        if boundaries:
            places = [shape.position(shape.stages - 1, c) for c in range(shape.chunks)]
            own = [
                k
                for place in places
                for k in self.layer_classes[boundaries[place] : boundaries[place + 1]]
            ]
            waits = self.layer_classes[: boundaries[min(places)]]
            drains = shape.kind not in SPLIT_KINDS
            ramp_s = sum(forward[kind] + drains * back[kind] for kind in waits)
            found = max(found, ramp_s + sum(cost.seconds[kind] for kind in own) + cost.rest_s)
        return found * (1 - ROUNDING)

    def _first_last_pass_s(self, shape: PipelineShape) -> tuple[dict[int, float], dict[int, float]]:
        """The least of each kind's first forward, and of its last backward or its input part."""
        part: BackwardPart = "input" if shape.kind in SPLIT_KINDS else "whole"
        one = shape.microbatches == 1
        hides = (2 - self.slowdown) if shape.overlaps_passes else 0.0
        found = []
        for kind in (PassKind(True, 0, True, one), PassKind(False, 0, one, True, part)):
            number = kind_number(kind)
            columns = {k: t.columns[:, :, number] for k, t in self.tables.items()}
            least = {k: (c[:, WORK] - hides * c[:, INSIDE]).min() for k, c in columns.items()}
            found.append({k: float(seconds) for k, seconds in least.items()})
        return found[0], found[1]

    def _aggregate(self, key: tuple[int, int, float, bool]) -> tuple[float, StageCost]:
        """Seconds of all passes of all stages, and what their prices say of each stage alone.

        Args:
            key: stages whose memory is pooled, micro-batches, bytes of a device, and whether
                passes overlap.
        """
        if key not in self._aggregated:
            stages, microbatches, budget_bytes, overlaps_passes = key
            alone = PipelineShape(1, 1, "1f1b", 1, microbatches)
            groups = aggregated_groups(
                self.layer_positions, self.layer_classes, alone, (1, len(self.layer_classes))
            )
            counts = pass_counts(alone.kind, microbatches)[None]
            none = np.zeros_like(counts)
            budget = np.array([stages * budget_bytes])
            step = ColumnGeneration(groups, (alone.kind, 1, 1, microbatches), self.slowdown, budget)
            single, paired = (none, counts) if overlaps_passes else (counts, none)
            step.enforce([Chain((0,), single, paired, np.zeros((2, 1)))])
            found = step.bound(float("inf"), adds_critical_paths=False)
            self.seeds += _seeds(groups, found.mix or [])
            cost = StageCost(dict.fromkeys(self.tables, 0.0), 0.0)
            if found.dual_prices is not None:
                spare_s = float(found.dual_prices.byte_price_s[0]) * budget_bytes
                seconds = min_cost_by_class(groups, found.dual_prices)
                cost = StageCost(seconds, min(found.dual_prices.rest_s, 0.0) - spare_s)
            self._aggregated[key] = found.seconds * (1 - ROUNDING), cost
        return self._aggregated[key]

    def relaxed(
        self,
        shape: PipelineShape,
        budget_bytes: float,
        enough_s: float,
        adds_critical_paths: bool = True,
    ) -> RelaxedBound:
        """The relaxed step of a pipeline of one chunk a stage, over all its cuts.

        Args:
            shape: the pipeline.
            budget_bytes: what a device may hold.
            enough_s: plans that take longer are of no interest.
            adds_critical_paths: whether the step is played for more chains than the closed ones.

        Returns:
            A bound of the plans that take less than ``enough_s``: of all others that itself is one.
        """
        travel_s = self.least_travel_s(shape)
        place = (self.layer_positions, self.layer_classes, shape, budget_bytes)
        arcs = StageFeasibility(*place, travel_s[0]).arcs(enough_s)
        if not arcs[0]:
            return RelaxedBound(enough_s, None, None)
        stages = shape.stages
        pipeline: Pipeline = (shape.kind, stages, shape.chunks, shape.microbatches)
        groups = free_boundary_groups(self.layer_positions, shape, arcs, travel_s)
        step = ColumnGeneration(groups, pipeline, self.slowdown, np.full(stages, budget_bytes))
        every = max(1, stages // MAX_ENFORCED_STAGES)
        step.enforce(chains(pipeline, tuple(dict.fromkeys((*range(0, stages, every), stages - 1)))))
        return step.bound(enough_s, adds_critical_paths and shape.passes <= MAX_TIMED_PASSES)

    def least_travel_s(self, shape: PipelineShape) -> Floats:
        """Least seconds of the messages into each position, forward and backward.

        No stage hands on what the last layer, often a head, puts out: next to nothing.
        """
        layer_classes = dict.fromkeys(self.layer_classes[:-1])
        size = min(
            (float(self.tables[kind].output_bytes.min()) for kind in layer_classes), default=0.0
        )
        found = np.zeros((2, shape.positions))
        for position in range(1, shape.positions):
            ends = shape.stage_of(position - 1), shape.stage_of(position)
            found[0, position] = self.message_s(shape, *ends, size)
            found[1, position - 1] = found[0, position]
        return found


def _seeds(groups: LayerGroups, mix: FractionalOptions) -> list[dict[int, int]]:
    """The options of a mix of one place, by kind: first the most used ones, then the next."""
    ranked = [sorted(own, key=lambda option: (-own[option], option)) for own in mix]
    found = []
    for options in zip_longest(*ranked):
        rows = zip(groups.groups, ranked, options, strict=True)
        found.append({c.kind: own[0] if row is None else row for c, own, row in rows})
    return found


class BoundedPipeline(FixedPipeline):
    """A pipeline with fixed cuts, while it is bounded.

    Args:
        bounds: of its place.
        shape: the pipeline.
        boundaries: cut points of its chunks.
        budget_bytes: what a device may hold.
    """

    def __init__(
        self,
        bounds: PipelineBounds,
        shape: PipelineShape,
        boundaries: Sequence[int],
        budget_bytes: float,
    ) -> None:
        super().__init__(bounds.layer_positions, bounds.layer_classes, shape, boundaries)
        self._bounds, self.budget_bytes = bounds, budget_bytes
        self._best_s = 0.0
        self._unbounded_stages: list[int] = list(self._critical_stages())
        self._step: ColumnGeneration | None = None
        self._follows_all = False
        self.fractional: FractionalPlan | None = None

    def bound(self, enough_s: float = float("inf"), adds_critical_paths: bool = True) -> float:
        """Seconds of the passes of every plan with these cuts at the least.

        Args:
            enough_s: a bound as high as this is high enough.
            adds_critical_paths: whether the step is played for more chains than the closed ones.
        """
        while self._unbounded_stages and self._best_s < enough_s:
            self._best_s = max(self._best_s, self._stage_s(self._unbounded_stages.pop(0)))
        if self._best_s < enough_s and not self._can_fit:
            self._best_s = float("inf")
        if self._best_s < enough_s:
            last, *others = self._critical_stages()
            if self._step is None:
                self._step = self._new_step(np.full(self.shape.stages, self.budget_bytes))
                self._step.enforce(chains(self.pipeline, (last,)))
                first_s = self._step.bound(enough_s, adds_critical_paths=False).seconds
                self._best_s = max(self._best_s, first_s)
            if self._best_s < enough_s and not self._follows_all:
                self._step.enforce(chains(self.pipeline, tuple(others)) if others else ())
                self._follows_all = True
            if self._best_s < enough_s:
                found = self._step.bound(
                    enough_s, adds_critical_paths and self.shape.passes <= MAX_TIMED_PASSES
                )
                self._best_s = max(self._best_s, found.seconds)
                if found.mix is not None:
                    self.fractional = FractionalPlan(self._step.groups, found.mix)
        return self._best_s * (1 - ROUNDING)

    def _stage_s(self, stage: int) -> float:
        """Seconds of the chains of a stage at the least, its own layers within its memory."""
        places = [self.shape.position(stage, chunk) for chunk in range(self.shape.chunks)]
        peak_in_flight = dict(zip(places, self.shape.peak_in_flight(stage), strict=True))
        rest = (peak_in_flight, self.budget_bytes, self._bounds.slowdown, self._travel_s)
        return max(chain_bound_s(self, each, *rest) for each in chains(self.pipeline, (stage,)))

    @cached_property
    def _travel_s(self) -> Floats:
        return self._bounds.least_travel_s(self.shape)

    @cached_property
    def _can_fit(self) -> bool:
        return self._min_peak_bytes() <= self.budget_bytes

    def forget(self) -> None:
        """Keep the bound, and nothing that was needed to find it."""
        self._step, self._follows_all, self.fractional = None, False, None
        self.__dict__.pop("uniform", None)

    @cached_property
    def uniform(self) -> UniformPlans | None:
        """Its uniform plans; None where none can fit."""
        if not self._can_fit:
            return None
        own, message_s = self._bounds, partial(self._bounds.message_s, self.shape)
        place = (
            own.layer_positions,
            own.layer_classes,
            self.shape,
            self.boundaries,
            self.budget_bytes,
        )
        return UniformPlans(*place, own.slowdown, message_s)

    @property
    def estimate_s(self) -> float:
        """About what the best uniform plan takes; infinite where none fits."""
        own_s = float("inf") if self.uniform is None else self.uniform.estimate_s
        return max(own_s, self._best_s * (1 - ROUNDING))

    def in_layout(self, layout: object) -> BoundedPipeline:
        """The same pipeline with options of one activation layout, where a kind has any."""
        return BoundedPipeline(
            self._bounds.in_layout(layout), self.shape, self.boundaries, self.budget_bytes
        )

    def relaxed(self, budgets: Floats, enough_s: float) -> tuple[float, FractionalPlan | None]:
        """The relaxed step within other budgets.

        Args:
            budgets: bytes of each stage.
            enough_s: a bound as high as this is high enough.

        Returns:
            A bound and the layers; none where nothing fits.
        """
        step = self._new_step(budgets)
        step.enforce(chains(self.pipeline, self._critical_stages()))
        found = step.bound(enough_s, adds_critical_paths=self.shape.passes <= MAX_TIMED_PASSES)
        return found.seconds, None if found.mix is None else FractionalPlan(step.groups, found.mix)

    def _new_step(self, budgets: Floats) -> ColumnGeneration:
        """A step with the options that are best in the place."""
        groups = fixed_boundary_groups(self, partial(self._bounds.message_s, self.shape))
        step = ColumnGeneration(groups, self.pipeline, self._bounds.slowdown, budgets)
        for rows in self._bounds.seeds:
            step.add_option([rows[group.kind] for group in groups.groups])
        return step
