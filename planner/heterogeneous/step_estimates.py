"""Likely step times of shapes over several device groups.

Each stage takes for every layer class its fastest usual strategy with room for the stage's share
of the layers, or for the whole class if smaller; boundaries are in proportion to stage rates, with
the schedule's fill and drain.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ..space.pipeline_shape import PipelineShape
from .joint_table import joint_table
from .option_tables import RankClassTables, StageTables
from .uneven_partition import weighted_boundaries

FILL = {"gpipe": 1.0, "1f1b": 1.0, "interleaved": 1.0, "zero_bubble": 0.4, "zbv": 0.2}
"""Part of one micro-batch's time on the other stages that is exposed while a pipeline fills."""
OTHER_FILL = 0.3


class StepEstimates:
    """Likely step times."""

    def __init__(self, layer_classes: tuple[int, ...]) -> None:
        self._layer_classes = layer_classes
        self._firsts = {c: layer_classes.index(c) for c in layer_classes}
        self._counts = Counter(layer_classes)
        self._fastest: dict[tuple[object, ...], float] = {}

    def step_s(
        self,
        shape: PipelineShape,
        tables: Sequence[StageTables],
        budgets: Sequence[Sequence[float]],
        shares: Sequence[float],
    ) -> float:
        """Likely step time; infinite if a stage lacks room for its share.

        Args:
            shape: the pipeline shape.
            tables: of every layer on every stage.
            budgets: live bytes by stage and rank class.
            shares: target layers of each stage, in fractions.
        """
        layers = len(self._layer_classes)
        layer_s: list[Callable[[int], float]] = []
        for stage in range(shape.stages):
            share = max(1.0, shares[stage])
            in_flight = sum(shape.first_in_flight(stage)) / shape.chunks
            layer_s.append(self._layer_s(tables[stage], budgets[stage], share, in_flight))
        main = self._layer_classes[layers // 2]
        if any(math.isinf(seconds(main)) for seconds in layer_s):
            return math.inf
        weights = [0.0] * shape.positions
        stage_of = [0] * shape.positions
        for stage in range(shape.stages):
            for chunk in range(shape.chunks):
                position = shape.position(stage, chunk)
                weights[position], stage_of[position] = shares[stage], stage
        boundaries = weighted_boundaries(layers, weights)
        if boundaries is None:
            return math.inf
        loads = [0.0] * shape.stages
        for position, stage in enumerate(stage_of):
            for layer in range(boundaries[position], boundaries[position + 1]):
                loads[stage] += layer_s[stage](self._layer_classes[layer])
        if math.isinf(max(loads)):
            return math.inf
        fill = FILL.get(shape.kind, OTHER_FILL) * (sum(loads) - max(loads))
        return max(loads) + fill / (shape.chunks * shape.microbatches)

    def _layer_s(
        self, tables: StageTables, budgets: Sequence[float], share: float, in_flight: float
    ) -> Callable[[int], float]:
        """Step seconds of a class's layer on a stage."""

        def seconds(layer_class: int) -> float:
            options = tables[self._firsts[layer_class]]
            if options is None:
                return math.inf
            most = min(share, self._counts[layer_class])  # of a heavy head there is one
            key = (id(options), tuple(budgets), round(most, 3), in_flight)
            if key not in self._fastest:
                self._fastest[key] = _fastest(options, budgets, most, in_flight)
            return self._fastest[key]

        return seconds


def _fastest(
    tables: RankClassTables, budgets: Sequence[float], share: float, in_flight: float
) -> float:
    table = joint_table(tables, budgets)
    fits = table.bytes_at(in_flight) * share <= min(budgets)
    return float(np.min(np.where(fits, table.step_estimate_s, np.inf)))
