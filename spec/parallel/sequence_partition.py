"""Which tokens of a sample each rank of a stage holds, where layers split the sequence.

A ring of n ranks cuts a sequence into 2n pieces and gives rank i pieces i and 2n - 1 - i, so that
causal work is even (zigzag; Llama 3, arXiv:2407.21783, section 3.3.2). The tp ranks of a layer
with sequence parallelism hold consecutive tokens of their ring rank's. Executor and cost model
read the same definitions; whoever wants another layout changes them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..model.parameter_spec import split_range
from .batch_partition import IndexRange
from .rank_groups import context_group, tensor_group

if TYPE_CHECKING:
    from ..strategy import LayerStrategy

IndexRanges = tuple[IndexRange, ...]
"""Tokens in ascending order, in as few spans as can be."""


def merge_ranges(spans: Iterable[IndexRange]) -> IndexRanges:
    """The same numbers with neighbouring spans made one and empty ones left out."""
    found: list[IndexRange] = []
    for span in spans:
        if found and found[-1].end == span.first:
            found[-1] = IndexRange(found[-1].first, span.end)
        elif span.size:
            found.append(span)
    return tuple(found)


def count(spans: IndexRanges) -> int:
    """How many numbers the spans hold."""
    return sum(span.size for span in spans)


def intersect_ranges(spans: IndexRanges, others: IndexRanges) -> IndexRanges:
    """The numbers in both."""
    return merge_ranges(span.intersection(other) for span in spans for other in others)


def partition_range(spans: IndexRanges, parts: int, index: int) -> IndexRanges:
    """Part ``index`` of the numbers cut into parts of ceil(numbers / parts)."""
    return merge_ranges(_between(spans, *split_range(count(spans), parts, index)))


def positions_of(spans: IndexRanges, chosen: IndexRanges) -> IndexRanges:
    """Where the ``chosen`` numbers stand among those of ``spans``, which has them all."""
    return merge_ranges(_places(spans, chosen))


def drop_leading(spans: IndexRanges, leading: int) -> IndexRanges:
    """The numbers from ``leading`` on, counted from there."""
    return merge_ranges(
        IndexRange(max(0, span.first - leading), max(0, span.end - leading)) for span in spans
    )


def _between(spans: IndexRanges, start: int, stop: int) -> Iterator[IndexRange]:
    """The numbers from place ``start`` to before place ``stop``."""
    before = 0
    for span in spans:
        own = IndexRange(before, before + span.size).intersection(IndexRange(start, stop))
        yield IndexRange(span.first + own.first - before, span.first + own.end - before)
        before += span.size


def _places(spans: IndexRanges, chosen: IndexRanges) -> Iterator[IndexRange]:
    before = 0
    for span in spans:
        for own in intersect_ranges((span,), chosen):
            yield IndexRange(before + own.first - span.first, before + own.end - span.first)
        before += span.size


def ring_tokens(ranks: int, position: int, seq_len: int) -> IndexRanges:
    """The tokens of a ring rank: pieces ``position`` and ``2 ranks - 1 - position``."""
    if ranks == 1:
        return (IndexRange(0, seq_len),)
    piece = seq_len // (2 * ranks)
    late = 2 * ranks - 1 - position
    return merge_ranges(IndexRange(i * piece, (i + 1) * piece) for i in (position, late))


def _own_ring_tokens(strategy: LayerStrategy, rank: int, seq_len: int) -> IndexRanges:
    return ring_tokens(strategy.cp, context_group(strategy).position(rank), seq_len)


def input_tokens(strategy: LayerStrategy, rank: int, seq_len: int) -> IndexRanges:
    """The tokens that a layer reads on a rank of the stage, after any are joined."""
    own = _own_ring_tokens(strategy, rank, seq_len)
    return _own_part(strategy, rank, own) if strategy.ulysses else own


def local_tokens(strategy: LayerStrategy, rank: int, seq_len: int) -> IndexRanges:
    """The tokens that a rank of the stage holds between layers of this strategy."""
    own = _own_ring_tokens(strategy, rank, seq_len)
    return _own_part(strategy, rank, own) if strategy.layout[2] else own


def exchanged_tokens(strategy: LayerStrategy, rank: int, seq_len: int) -> IndexRanges:
    """The same where all tp ranks hold tokens of their own, as they exchange them."""
    return _own_part(strategy, rank, _own_ring_tokens(strategy, rank, seq_len))


def _own_part(strategy: LayerStrategy, rank: int, own: IndexRanges) -> IndexRanges:
    return partition_range(own, strategy.tp, tensor_group(strategy).position(rank))


__all__ = [
    "IndexRanges",
    "count",
    "drop_leading",
    "exchanged_tokens",
    "input_tokens",
    "intersect_ranges",
    "local_tokens",
    "merge_ranges",
    "partition_range",
    "positions_of",
    "ring_tokens",
]
