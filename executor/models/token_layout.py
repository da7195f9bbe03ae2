"""Token numbers of a rank in a layer; needs no torch.

Positions, causal mask, targets and data all follow them, so a layout changes only here and in
``spec.parallel.sequence_partition``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.parallel.rank_groups import context_group
from ...spec.parallel.sequence_partition import IndexRanges, input_tokens, local_tokens, ring_tokens
from ...spec.strategy import LayerStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLayout:
    """Token numbers of a rank in a layer.

    ``read``: input of its projections; ``held``: between layers; ``ring``: each ring rank's inside
    attention, by position; ``position``: this rank's position.
    """

    seq_len: int
    read: IndexRanges
    held: IndexRanges
    ring: tuple[IndexRanges, ...]
    position: int

    @property
    def positions(self) -> IndexRanges:
        """Positions of the tokens; empty for 0 to ``seq_len``."""
        return () if self.read == ((0, self.seq_len),) else self.read

    def seen(self, other: int) -> list[int]:
        """Another ring rank's keys visible to local queries under a causal mask.

        Returns:
            ``first, end, keys`` per rectangle: queries ``first`` to before ``end`` see the first
            ``keys`` keys.
        """
        rectangles: list[int] = []
        start = 0
        for queries in self.ring[self.position]:
            keys = sum(
                max(0, min(span.end, queries.first) - span.first) for span in self.ring[other]
            )
            if keys and rectangles and rectangles[-1] == keys and rectangles[-2] == start:
                rectangles[-2] = start + queries.size
            elif keys:
                rectangles += [start, start + queries.size, keys]
            start += queries.size
        return rectangles


def token_layout(strategy: LayerStrategy, rank: int, seq_len: int) -> TokenLayout:
    """Layout of a layer on a rank of its stage."""
    return TokenLayout(
        seq_len=seq_len,
        read=input_tokens(strategy, rank, seq_len),
        held=local_tokens(strategy, rank, seq_len),
        ring=tuple(ring_tokens(strategy.cp, i, seq_len) for i in range(strategy.cp)),
        position=context_group(strategy).position(rank),
    )


__all__ = ["TokenLayout", "token_layout"]
