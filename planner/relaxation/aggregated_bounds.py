"""Lower bounds of pipelines whose stages pool their memory.

The passes of all stages together, within the memory of all, bound every pipeline of a stage
context at once; by their dual prices every stage takes at least a sum over its layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from ...costmodel.lowering.stage_passes import PassKind
from ...spec.schedules.passes import BackwardPart
from ...spec.schedules.stage_order import SPLIT_KINDS
from ..chains.pass_chains import Chain, Pipeline, draining_counts, pass_counts
from ..space.memory_budget import Budget
from ..space.pipeline_shape import PipelineShape
from ..tables.layer_position import LayerPositions
from ..tables.pass_kinds import STEP_END, kind_number
from .column_generation import ColumnGeneration
from .dual_prices import min_cost_by_class
from .layer_groups import LayerGroups, aggregated_groups
from .restricted_master import FractionalOptions

ROUNDING = 1e-9


class AggregateKey(NamedTuple):
    """Stages of aggregated memory, micro-batches, a device's budget, and the passes meant.

    ``drains``: True if they end with the last message, and not with the stage.
    """

    stages: int
    microbatches: int
    budget: Budget
    overlaps_passes: bool
    drains: bool = False

    @classmethod
    def of(
        cls, shape: PipelineShape, stages: int, budget: Budget, drains: bool = False
    ) -> AggregateKey:
        """The key of a shape."""
        return cls(stages, shape.microbatches, budget, shape.overlaps_passes, drains)


class StageCost(NamedTuple):
    """Stage step bound: seconds of a layer by class, and the rest."""

    seconds: Mapping[int, float]
    rest_s: float


class AggregatedBounds:
    """Bounds of a stage context with aggregated memory, each computed once.

    Args:
        layer_positions: of the stage context.
        layer_classes: class of every layer.
        slowdown: factor of work and communication sharing the device, at most 2.

    ``seeds``: good options of each class.
    """

    def __init__(
        self, layer_positions: LayerPositions, layer_classes: Sequence[int], slowdown: float
    ) -> None:
        self.layer_positions, self.tables = layer_positions, layer_positions.tables
        self.layer_classes, self.slowdown = layer_classes, slowdown
        self.seeds: list[dict[int, int]] = []
        self._aggregated: dict[AggregateKey, tuple[float, StageCost]] = {}

    def bound_s(
        self, shape: PipelineShape, boundaries: Sequence[int], stages: int, budget: Budget
    ) -> float:
        """Minimum seconds of a pipeline's passes, from bounds of its context.

        All stages together take so much, memory aggregated; the first micro-batch goes forward
        through the model and the last one back; with fixed boundaries the last stage waits for the
        layers before it, runs its own passes, and with whole backwards waits for theirs.

        Args:
            shape: the pipeline.
            boundaries: of its chunks, empty if free.
            stages: maximum of the context's pipelines: fewer hold less.
            budget: of a device.
        """
        every_s, cost = self.of(AggregateKey.of(shape, stages, budget))
        forward, back = self._first_last_pass_s(shape)
        bound_s = max(every_s / shape.stages, sum(forward[k] + back[k] for k in self.layer_classes))
        if boundaries:
            last = [shape.position(shape.stages - 1, chunk) for chunk in range(shape.chunks)]
            last_stage = [
                layer_class
                for position in last
                for layer_class in self.layer_classes[
                    boundaries[position] : boundaries[position + 1]
                ]
            ]
            earlier = self.layer_classes[: boundaries[min(last)]]
            fill_s = sum(forward[k] for k in earlier)
            ends = [(cost, 0.0)]
            if shape.kind not in SPLIT_KINDS:
                draining = self.of(AggregateKey.of(shape, stages, budget, drains=True))[1]
                ends.append((draining, sum(back[k] for k in earlier)))
            for stage_cost, after_s in ends:
                stage_s = sum(stage_cost.seconds[k] for k in last_stage)
                bound_s = max(bound_s, fill_s + stage_s + stage_cost.rest_s + after_s)
        return bound_s * (1 - ROUNDING)

    def _first_last_pass_s(self, shape: PipelineShape) -> tuple[dict[int, float], dict[int, float]]:
        """Minimum of each class's first forward, and last backward or input part."""
        part: BackwardPart = "input" if shape.kind in SPLIT_KINDS else "whole"
        one = shape.microbatches == 1
        gain = (2 - self.slowdown) if shape.overlaps_passes else 0.0

        def least_s(kind: PassKind) -> dict[int, float]:
            seconds, number = {}, kind_number(kind, sends=True)
            for layer_class, table in self.tables.items():
                work_s = table.columns["work"][:, number]
                overlappable_s = table.columns["overlappable"][:, number]
                seconds[layer_class] = float((work_s - gain * overlappable_s).min())
            return seconds

        return least_s(PassKind(True, 0, True, one)), least_s(PassKind(False, 0, one, True, part))

    def of(self, key: AggregateKey) -> tuple[float, StageCost]:
        """Seconds of all passes, and each stage's cost by their duals."""
        if key not in self._aggregated:
            stages, microbatches, budget, overlaps_passes, drains = key
            alone = PipelineShape(1, 1, "1f1b", 1, microbatches)
            groups = aggregated_groups(
                self.layer_positions, self.layer_classes, alone, (1, len(self.layer_classes))
            )
            counts_of = draining_counts if drains else pass_counts
            single = counts_of(alone.kind, microbatches)[None]
            paired = np.zeros_like(single)
            total_bytes = np.array([[stages * size] for size in budget])
            pipeline: Pipeline = (alone.kind, 1, 1, microbatches)
            step = ColumnGeneration(groups, pipeline, self.slowdown, total_bytes)
            if overlaps_passes:
                paired[:, :STEP_END] = single[:, :STEP_END]
                single[:, :STEP_END] = 0.0
            step.enforce([Chain((0,), single, paired, np.zeros((2, 1)))])
            bound = step.bound(float("inf"), adds_critical_paths=False)
            self.seeds += _seeds(groups, bound.mix or [])
            cost = StageCost(dict.fromkeys(self.tables, 0.0), 0.0)
            if bound.dual_prices is not None:
                prices_s = bound.dual_prices.byte_price_s[:, 0].tolist()
                spare_s = sum(s * size for s, size in zip(prices_s, budget, strict=True))
                seconds = min_cost_by_class(groups, bound.dual_prices)
                cost = StageCost(seconds, min(bound.dual_prices.rest_s, 0.0) - spare_s)
            self._aggregated[key] = bound.seconds * (1 - ROUNDING), cost
        return self._aggregated[key]


def _seeds(groups: LayerGroups, mix: FractionalOptions) -> list[dict[int, int]]:
    ranked = [sorted(layers, key=lambda option: (-layers[option], option)) for layers in mix]
    seeds = []
    for options in zip_longest(*ranked):
        rows = zip(groups.groups, ranked, options, strict=True)
        seeds.append(
            {group.layer_class: best[0] if row is None else row for group, best, row in rows}
        )
    return seeds
