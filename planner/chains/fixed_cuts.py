"""A pipeline whose layers are cut into chunks: who sits where, and what stages need.

What a layer costs on a chain depends on its seat (:mod:`layer_position`) and on the role of its
chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...spec.schedules.stage_order import V_KINDS
from ..space.in_flight import InFlight
from ..space.pipeline_shape import PipelineShape
from ..tables.layer_position import LayerPosition, LayerPositions, count_positions
from .pass_chains import Pipeline

Floats = NDArray[np.float64]
RolePosition = tuple[int, int, int, tuple[int, ...], bool, bool]
"""Role of a chunk, and a seat in it."""
OptionChoice = Callable[[int, LayerPosition], int]
"""The option of the layers in a seat of a position, a row of their table."""


class FixedPipeline:
    """A pipeline with fixed cuts.

    Args:
        layer_positions: of its place.
        layer_classes: the kind of every layer.
        shape: the pipeline.
        boundaries: cut points of its chunks.
    """

    def __init__(
        self,
        layer_positions: LayerPositions,
        layer_classes: Sequence[int],
        shape: PipelineShape,
        boundaries: Sequence[int],
    ) -> None:
        self.layer_positions, self.tables = layer_positions, layer_positions.tables
        self.main = Counter(layer_classes).most_common(1)[0][0]
        self.shape, self.layer_classes, self.boundaries = (
            shape,
            tuple(layer_classes),
            tuple(boundaries),
        )
        self.pipeline: Pipeline = (shape.kind, shape.stages, shape.chunks, shape.microbatches)
        self.counts = [Counter(layer_classes[a:b]) for a, b in pairwise(boundaries)]
        self.edges = [(layer_classes[a], layer_classes[b - 1]) for a, b in pairwise(boundaries)]
        self.places = [count_positions(layer_classes[a:b]) for a, b in pairwise(boundaries)]

    def _critical_stages(self) -> tuple[int, ...]:
        """The last stage, the last of those with most layers, and the first where it ends a V."""
        p = self.shape.stages
        sizes = [
            sum(self.counts[self.shape.position(s, c)].total() for c in range(self.shape.chunks))
            for s in range(p)
        ]
        fullest = max(range(p), key=lambda s: (sizes[s], s))
        ends = (p - 1, fullest, 0) if self.shape.kind in V_KINDS else (p - 1, fullest)
        return tuple(dict.fromkeys(ends))

    def layer_position(self, position: int, layer: int) -> LayerPosition:
        """Where a layer of the model sits in its chunk."""
        chunk, (start, stop) = self.counts[position], self.boundaries[position : position + 2]
        layer_classes = tuple(sorted(chunk))
        return (
            self.layer_classes[layer],
            chunk.total(),
            layer_classes,
            layer == start,
            layer == stop - 1,
        )

    def _min_peak_bytes(self) -> float:
        """Bytes of the fullest stage at the least, each of its layers at its smallest."""
        known: dict[tuple[int, InFlight], float] = {}
        fullest = 0.0
        for stage in range(self.shape.stages):
            need = 0.0
            for chunk, peak_in_flight in enumerate(self.shape.peak_in_flight(stage)):
                for kind, count in self.counts[self.shape.position(stage, chunk)].items():
                    if (kind, peak_in_flight) not in known:
                        known[kind, peak_in_flight] = float(
                            self.tables[kind].bytes_at(peak_in_flight).min()
                        )
                    need += count * known[kind, peak_in_flight]
            fullest = max(fullest, need)
        return fullest

    def _uniform_stage_bytes(self) -> Floats:
        """Bytes of each stage in each uniform plan, shape (stages that differ, rows)."""
        table = self.tables[self.main]
        needs = dict.fromkeys(self._stage_bytes(stage) for stage in range(self.shape.stages))
        found: Floats = np.zeros((len(needs), len(table.strategies)))
        for own, (blocks, other) in zip(found, needs, strict=True):
            own += other
            for peak_in_flight, count in blocks:
                own += count * table.bytes_at(peak_in_flight)
        return found

    def _stage_bytes(self, stage: int) -> tuple[tuple[tuple[InFlight, int], ...], float]:
        """Blocks of a stage by what their chunk holds, least bytes of other layers."""
        blocks: list[tuple[InFlight, int]] = []
        other = 0.0
        for chunk, peak_in_flight in enumerate(self.shape.peak_in_flight(stage)):
            for kind, count in self.counts[self.shape.position(stage, chunk)].items():
                if kind == self.main:
                    blocks.append((peak_in_flight, count))
                else:
                    other += count * float(self.tables[kind].bytes_at(peak_in_flight).min())
        return tuple(blocks), other
