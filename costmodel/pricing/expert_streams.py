"""Seconds of experts' rows in chunks, on three streams: between nodes, inside them, products.

FSMoE (arXiv:2501.10714), sections 3 and 4, generalized. Chunk i goes through dispatch (between
nodes), gather (inside), products, scatter (inside) and combine (between). A stream runs in order:
all dispatches before the combines, with a window of other work in between; all gathers before the
scatters. Weight gradients follow a chunk's products, and nothing waits for them but the next chunk.

With chunks of equal length the last one ends by its longest path: the first chunk through all
stages and then the slowest one r - 1 times; or up to the last gather, then all scatters; or the
outer stream without a gap. Gather and scatter may differ, and dispatch and combine.
"""

from __future__ import annotations

from typing import NamedTuple

from ..symbolic.work_overlap import ExpertStage


class ChunkSeconds(NamedTuple):
    """Seconds of one chunk at each stage; 0: it has none."""

    dispatch: float = 0.0
    gather: float = 0.0
    experts: float = 0.0
    weights: float = 0.0
    scatter: float = 0.0
    combine: float = 0.0

    def on_one_link(self) -> ChunkSeconds:
        """The same where both levels of the way are one resource, and take turns."""
        return self._replace(
            dispatch=self.dispatch + self.gather,
            gather=0.0,
            scatter=0.0,
            combine=self.scatter + self.combine,
        )


def pipelined_s(chunks: int, each: ChunkSeconds, window_s: float = 0.0) -> float:
    """Seconds of so many equal chunks, each of these seconds.

    Args:
        chunks: at least 1.
        each: of one chunk.
        window_s: of other work on the outer stream, between dispatches and combines.
    """
    a, g, e, w, s, c = each
    more, product_s = chunks - 1, e + w
    there_s = max(a, g)
    way_back_s = s + c + more * max(s, c)
    return max(
        a + g + e + s + c + more * max(there_s, product_s, s, c),
        a + g + product_s + more * max(there_s, product_s),
        a + g + more * there_s + way_back_s,
        chunks * (a + c) + window_s,
    )


class PricedChunks(NamedTuple):
    """Chunks of a pass, with the factor of products beside exchanges."""

    chunks: int
    each: ChunkSeconds
    slowdown: float

    @property
    def products_s(self) -> float:
        """Seconds of the products of all chunks."""
        return self.chunks * (self.each.experts + self.each.weights)

    def exposed_s(self, window_s: float = 0.0) -> float:
        """Seconds that they take beyond their products, with other work in their window."""
        chunks, each, products_s = self.chunks, self.each, self.products_s
        exchanges_s = chunks * (each.dispatch + each.gather + each.scatter + each.combine)
        exposed_s = pipelined_s(chunks, each, window_s) - products_s
        hidden_s = max(0.0, exchanges_s + window_s - exposed_s)
        return exposed_s + (self.slowdown - 1.0) * min(hidden_s, products_s)


class PlacedChunks(NamedTuple):
    """Chunks of a pass, and the seconds of the pass before their first exchange."""

    start_s: float
    priced: PricedChunks


class ExpertStreams:
    """Seconds of a pass's chunks by stage, until the last has come back."""

    def __init__(self) -> None:
        self._stages: dict[ExpertStage, float] = {}
        self.ended: PricedChunks | None = None

    def add(self, stage: ExpertStage, seconds: float) -> None:
        """Put work on its stage."""
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds

    def exposed_s(self, chunks: int, shares_link: bool, slowdown: float = 1.0) -> float:
        """Seconds that the chunks take beyond their products; begins anew.

        Args:
            chunks: of the pass.
            shares_link: True if both levels of the way use one resource.
            slowdown: factor of products beside exchanges.
        """
        each = ChunkSeconds(**{stage: s / chunks for stage, s in self._stages.items()})
        self._stages = {}
        each = each.on_one_link() if shares_link else each
        self.ended = PricedChunks(chunks, each, slowdown)
        return self.ended.exposed_s()
