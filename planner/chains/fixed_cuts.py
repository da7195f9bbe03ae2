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
from ..space.in_flight import Held
from ..space.pipeline_shape import Shape
from ..tables.layer_position import Seat, Seats, seats_of
from .pass_chains import Pipeline

Floats = NDArray[np.float64]
Place = tuple[int, int, int, tuple[int, ...], bool, bool]
"""Role of a chunk, and a seat in it."""
Choice = Callable[[int, Seat], int]
"""The option of the layers in a seat of a position, a row of their table."""


class CutPipeline:
    """A pipeline with fixed cuts.

    Args:
        seats: of its place.
        kinds: the kind of every layer.
        shape: the pipeline.
        cuts: cut points of its chunks.
    """

    def __init__(
        self,
        seats: Seats,
        kinds: Sequence[int],
        shape: Shape,
        cuts: Sequence[int],
    ) -> None:
        self.seats, self.tables = seats, seats.tables
        self.main = Counter(kinds).most_common(1)[0][0]
        self.shape, self.kinds, self.cuts = shape, tuple(kinds), tuple(cuts)
        self.pipeline: Pipeline = (shape.kind, shape.stages, shape.chunks, shape.microbatches)
        self.counts = [Counter(kinds[a:b]) for a, b in pairwise(cuts)]
        self.edges = [(kinds[a], kinds[b - 1]) for a, b in pairwise(cuts)]
        self.places = [seats_of(kinds[a:b]) for a, b in pairwise(cuts)]

    def _stages(self) -> tuple[int, ...]:
        """The last stage, the last of those with most layers, and the first where it ends a V."""
        p = self.shape.stages
        sizes = [
            sum(self.counts[self.shape.position(s, c)].total() for c in range(self.shape.chunks))
            for s in range(p)
        ]
        fullest = max(range(p), key=lambda s: (sizes[s], s))
        ends = (p - 1, fullest, 0) if self.shape.kind in V_KINDS else (p - 1, fullest)
        return tuple(dict.fromkeys(ends))

    def seat(self, position: int, layer: int) -> Seat:
        """Where a layer of the model sits in its chunk."""
        chunk, (start, stop) = self.counts[position], self.cuts[position : position + 2]
        kinds = tuple(sorted(chunk))
        return (self.kinds[layer], chunk.total(), kinds, layer == start, layer == stop - 1)

    def _least_need(self) -> float:
        """Bytes of the fullest stage at the least, each of its layers at its smallest."""
        known: dict[tuple[int, Held], float] = {}
        fullest = 0.0
        for stage in range(self.shape.stages):
            need = 0.0
            for chunk, held in enumerate(self.shape.held(stage)):
                for kind, count in self.counts[self.shape.position(stage, chunk)].items():
                    if (kind, held) not in known:
                        known[kind, held] = float(self.tables[kind].bytes_at(held).min())
                    need += count * known[kind, held]
            fullest = max(fullest, need)
        return fullest

    def _stage_needs(self) -> Floats:
        """Bytes of each stage in each uniform plan, shape (stages that differ, rows)."""
        table = self.tables[self.main]
        needs = dict.fromkeys(self._stage_need(stage) for stage in range(self.shape.stages))
        found: Floats = np.zeros((len(needs), len(table.strategies)))
        for own, (blocks, other) in zip(found, needs, strict=True):
            own += other
            for held, count in blocks:
                own += count * table.bytes_at(held)
        return found

    def _stage_need(self, stage: int) -> tuple[tuple[tuple[Held, int], ...], float]:
        """Blocks of a stage by what their chunk holds, least bytes of other layers."""
        blocks: list[tuple[Held, int]] = []
        other = 0.0
        for chunk, held in enumerate(self.shape.held(stage)):
            for kind, count in self.counts[self.shape.position(stage, chunk)].items():
                if kind == self.main:
                    blocks.append((held, count))
                else:
                    other += count * float(self.tables[kind].bytes_at(held).min())
        return tuple(blocks), other
