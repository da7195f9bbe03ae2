"""A pipeline whose layers are cut into chunks: who sits where, and what stages need.

Layers of a chunk that count alike share a *seat*: of one kind, at the chunk's first or last place
or between. What a layer costs on a chain depends on its seat and on the role of its chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..spec.schedule import V_KINDS
from .chains import Chain, Pipeline
from .pass_table import SHARED, TRAFFIC, PassTable
from .shape import Shape

Floats = NDArray[np.float64]
Seat = tuple[int, int, tuple[int, ...], bool, bool]
"""Kind of layers, layers and kinds of their chunk, and whether it begins or ends with them."""
Place = tuple[int, int, int, tuple[int, ...], bool, bool]
"""Role of a chunk, and a seat in it."""
Choice = Callable[[int, Seat], int]
"""The option of the layers in a seat of a position, a row of their table."""


class CutPipeline:
    """A pipeline with fixed cuts.

    Args:
        tables: of each layer kind.
        kinds: the kind of every layer.
        shape: the pipeline.
        cuts: cut points of its chunks.
    """

    def __init__(
        self,
        tables: Mapping[int, PassTable],
        kinds: Sequence[int],
        shape: Shape,
        cuts: Sequence[int],
    ) -> None:
        self.tables = tables
        self.main = Counter(kinds).most_common(1)[0][0]
        self.shape, self.kinds, self.cuts = shape, tuple(kinds), tuple(cuts)
        self.pipeline: Pipeline = (shape.kind, shape.stages, shape.chunks, shape.microbatches)
        self.held = [Counter(kinds[a:b]) for a, b in pairwise(cuts)]
        self.edges = [(kinds[a], kinds[b - 1]) for a, b in pairwise(cuts)]
        self.places = [self._places(position) for position in range(shape.positions)]
        self._known_shown: dict[Seat, Floats | None] = {}

    def _stages(self) -> tuple[int, ...]:
        """The last stage, the last of those with most layers, and the first where it ends a V."""
        p = self.shape.stages
        sizes = [
            sum(self.held[self.shape.position(s, c)].total() for c in range(self.shape.chunks))
            for s in range(p)
        ]
        fullest = max(range(p), key=lambda s: (sizes[s], s))
        ends = (p - 1, fullest, 0) if self.shape.kind in V_KINDS else (p - 1, fullest)
        return tuple(dict.fromkeys(ends))

    def _layers(self, chain: Chain) -> Counter[Place]:
        """How many layers there are in each place of a chain."""
        found: Counter[Place] = Counter()
        for position, role in enumerate(chain.roles):
            for seat, count in self.places[position].items():
                found[role, *seat] += count
        return found

    def _shown(self, seat: Seat) -> Floats | None:
        """Hidden traffic of layers that shows all the same, shape (options, KINDS)."""
        if seat not in self._known_shown:
            shown_s = shown_in(self.tables, seat)
            self._known_shown[seat] = shown_s if shown_s.any() else None
        return self._known_shown[seat]

    def seat(self, position: int, layer: int) -> Seat:
        """Where a layer of the model sits in its chunk."""
        chunk, (start, stop) = self.held[position], self.cuts[position : position + 2]
        kinds = tuple(sorted(chunk))
        return (self.kinds[layer], chunk.total(), kinds, layer == start, layer == stop - 1)

    def _places(self, position: int) -> Counter[Seat]:
        """The seats of a chunk."""
        start, stop = self.cuts[position : position + 2]
        ends = {start, stop - 1}
        found = Counter(self.seat(position, layer) for layer in ends)
        inner = self.held[position] - Counter(self.kinds[layer] for layer in ends)
        layers, kinds = stop - start, tuple(sorted(self.held[position]))
        return found + Counter({(k, layers, kinds, False, False): n for k, n in inner.items()})

    def _once(self, chain: Chain, weights: Floats) -> Floats:
        """What rows of like layers have once a pass, by way."""
        found = np.zeros(weights.shape[1])
        known: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for role, chunk in zip(chain.roles, self.held, strict=True):
            known[role, tuple(sorted(chunk))] += 1
        for (role, kinds), count in known.items():
            once_s = np.sum([self.tables[kind].once_s for kind in kinds], axis=0)
            least_s = np.min([self.tables[kind].least_s for kind in kinds], axis=0)
            found += count * (weights[role, :, SHARED] @ once_s)
            found += count * (weights[role, :, TRAFFIC] @ least_s)
        return found

    def _least_need(self) -> float:
        """Bytes of the fullest stage at the least, each of its layers at its smallest."""
        known: dict[tuple[int, int], float] = {}
        fullest = 0.0
        for stage in range(self.shape.stages):
            need = 0.0
            for chunk, flight in enumerate(self.shape.first_in_flight(stage)):
                for kind, count in self.held[self.shape.position(stage, chunk)].items():
                    if (kind, flight) not in known:
                        known[kind, flight] = float(self.tables[kind].bytes_at(flight).min())
                    need += count * known[kind, flight]
            fullest = max(fullest, need)
        return fullest

    def _stage_needs(self) -> Floats:
        """Bytes of each stage in each uniform plan, shape (stages that differ, rows)."""
        table = self.tables[self.main]
        needs = dict.fromkeys(self._stage_need(stage) for stage in range(self.shape.stages))
        return np.array(
            [n * table.resident_bytes + q * table.kept_bytes + ends for n, q, ends in needs]
        )

    def _stage_need(self, stage: int) -> tuple[int, float, float]:
        """Blocks of a stage, blocks times micro-batches in flight, least bytes of other layers."""
        flights = self.shape.first_in_flight(stage)
        blocks, flying, other = 0, 0.0, 0.0
        for chunk in range(self.shape.chunks):
            for kind, count in self.held[self.shape.position(stage, chunk)].items():
                if kind == self.main:
                    blocks, flying = blocks + count, flying + count * flights[chunk]
                else:
                    other += count * float(self.tables[kind].bytes_at(flights[chunk]).min())
        return blocks, flying, other


def shown_in(tables: Mapping[int, PassTable], seat: Seat) -> Floats:
    """Hidden traffic of a layer in a seat that shows all the same, shape (options, KINDS)."""
    kind, layers, kinds, first, last = seat
    most_s = np.max([tables[other].most_s for other in kinds], axis=0)
    return tables[kind].shown_s(layers, most_s, first, last)
