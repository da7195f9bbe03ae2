"""Pipeline with a fixed layer-to-chunk assignment.

A layer's cost on a chain depends on its position (``tables.layer_position``) and its chunk's role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...spec.schedules.stage_order import V_KINDS
from ..space.in_flight import InFlight
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Floats
from ..tables.layer_position import LayerPosition, LayerPositions, count_positions
from .pass_chains import Pipeline

OptionChoice = Callable[[int, LayerPosition], int]
"""The option of the layers at a layer position of a chunk, a row of their table."""


class RolePosition(NamedTuple):
    """Role of a chunk on a chain, and a layer position."""

    role: int
    layer_position: LayerPosition


_StageBytes = tuple[tuple[tuple[InFlight, int], ...], tuple[float, ...]]
"""Main-class layers by in-flight micro-batches, and other layers' minimum bytes by memory."""


class FixedPipeline:
    """Pipeline with fixed stage boundaries.

    By chunk: ``class_counts``, layers of each class; ``position_counts``, of each layer position;
    ``last_classes``, class of the last layer. ``main_class``: the commonest class.
    """

    def __init__(
        self,
        layer_positions: LayerPositions,
        layer_classes: Sequence[int],
        shape: PipelineShape,
        boundaries: Sequence[int],
    ) -> None:
        self.layer_positions, self.tables = layer_positions, layer_positions.tables
        self.main_class = Counter(layer_classes).most_common(1)[0][0]
        self.shape = shape
        self.layer_classes, self.boundaries = tuple(layer_classes), tuple(boundaries)
        self.pipeline: Pipeline = (shape.kind, shape.stages, shape.chunks, shape.microbatches)
        chunks = [layer_classes[a:b] for a, b in pairwise(boundaries)]
        self.class_counts = [Counter(chunk) for chunk in chunks]
        self.last_classes = [chunk[-1] for chunk in chunks]
        self.position_counts = [count_positions(chunk) for chunk in chunks]

    def _critical_stages(self) -> tuple[int, ...]:
        """Last stage, last longest stage, and in a V the first."""
        p = self.shape.stages
        sizes = [
            sum(
                self.class_counts[self.shape.position(stage, chunk)].total()
                for chunk in range(self.shape.chunks)
            )
            for stage in range(p)
        ]
        largest = max(range(p), key=lambda stage: (sizes[stage], stage))
        stages = (p - 1, largest, 0) if self.shape.kind in V_KINDS else (p - 1, largest)
        return tuple(dict.fromkeys(stages))

    def layer_position(self, position: int, layer: int) -> LayerPosition:
        """Position of a layer of the model in its chunk."""
        class_counts = self.class_counts[position]
        start, stop = self.boundaries[position : position + 2]
        return LayerPosition(
            self.layer_classes[layer],
            class_counts.total(),
            tuple(sorted(class_counts)),
            layer == start,
            layer == stop - 1,
        )

    def _min_peak_bytes(self) -> Floats:
        """Maximum bytes of each memory over stages, each layer at its smallest option."""
        cache: dict[tuple[int, InFlight, bool], Floats] = {}
        largest: Floats = np.zeros(1)
        for stage in range(self.shape.stages):
            stage_bytes: Floats = np.zeros(1)
            for chunk, in_flight in enumerate(self.shape.peak_in_flight(stage)):
                positions = self.position_counts[self.shape.position(stage, chunk)]
                for layer_position, count in positions.items():
                    layer_class, is_last = layer_position.layer_class, layer_position.is_last
                    key = (layer_class, in_flight, is_last)
                    if key not in cache:
                        memory = self.tables[layer_class].memory_at(in_flight, is_last)
                        cache[key] = memory.min(axis=1)
                    stage_bytes = stage_bytes + count * cache[key]
            largest = np.maximum(largest, stage_bytes)
        return largest

    def _uniform_stage_bytes(self) -> Floats:
        """Bytes by memory of each stage in each uniform plan.

        Shape (distinct stages, memories, options).
        """
        table = self.tables[self.main_class]
        stages = dict.fromkeys(self._stage_bytes(stage) for stage in range(self.shape.stages))
        memories = 1 + len(table.resident_tier_bytes)
        totals: Floats = np.zeros((len(stages), memories, len(table.strategies)))
        for total, (blocks, other_bytes) in zip(totals, stages, strict=True):
            total += np.array(other_bytes)[:, None]
            for in_flight, count in blocks:
                total += count * table.memory_at(in_flight)
        return totals

    def _stage_bytes(self, stage: int) -> _StageBytes:
        blocks: list[tuple[InFlight, int]] = []
        memories = 1 + len(self.tables[self.main_class].resident_tier_bytes)
        other_bytes = np.zeros(memories)
        for chunk, in_flight in enumerate(self.shape.peak_in_flight(stage)):
            class_counts = self.class_counts[self.shape.position(stage, chunk)]
            for layer_class, count in class_counts.items():
                if layer_class == self.main_class:
                    blocks.append((in_flight, count))
                else:
                    least_bytes = self.tables[layer_class].memory_at(in_flight).min(axis=1)
                    other_bytes += count * least_bytes
        return tuple(blocks), tuple(other_bytes.tolist())
