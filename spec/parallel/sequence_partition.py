"""Tokens of a sample on each rank of a split sequence.

A ring of n ranks cuts a sequence into 2n pieces and gives rank i pieces i and 2n - 1 - i, so that
causal work is even (zigzag; Llama 3, arXiv:2407.21783, section 3.3.2). The tp ranks of a layer
with sequence parallelism hold consecutive tokens of their ring rank's. Executor and cost model
both read these definitions.
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
"""Tokens in ascending order, in as few ranges as can be."""


def merge_ranges(spans: Iterable[IndexRange]) -> IndexRanges:
    """The same numbers, neighboring ranges merged and empty ones left out."""
    merged: list[IndexRange] = []
    for span in spans:
        if merged and merged[-1].end == span.first:
            merged[-1] = IndexRange(merged[-1].first, span.end)
        elif span.size:
            merged.append(span)
    return tuple(merged)


def count(spans: IndexRanges) -> int:
    """Total size of the ranges."""
    return sum(span.size for span in spans)


def intersect_ranges(spans: IndexRanges, others: IndexRanges) -> IndexRanges:
    """The numbers in both."""
    return merge_ranges(span.intersection(other) for span in spans for other in others)


def partition_range(spans: IndexRanges, parts: int, index: int) -> IndexRanges:
    """Part ``index`` of the numbers, in parts of ceil(numbers / parts)."""
    return merge_ranges(_between(spans, *split_range(count(spans), parts, index)))


def later_tokens(spans: IndexRanges, parts: int, skipped: int) -> IndexRanges:
    """The numbers but for the first ``skipped`` of each of ``parts`` parts."""
    pieces = (partition_range(spans, parts, index) for index in range(parts))
    return merge_ranges(span for piece in pieces for span in _between(piece, skipped, count(piece)))


def positions_of(spans: IndexRanges, subset: IndexRanges) -> IndexRanges:
    """Positions of ``subset`` numbers among those of ``spans``, a superset."""
    return merge_ranges(_positions(spans, subset))


def drop_leading(spans: IndexRanges, leading: int) -> IndexRanges:
    """The numbers from ``leading`` on, counted from there."""
    return merge_ranges(
        IndexRange(max(0, span.first - leading), max(0, span.end - leading)) for span in spans
    )


def _between(spans: IndexRanges, start: int, stop: int) -> Iterator[IndexRange]:
    before = 0
    for span in spans:
        part = IndexRange(before, before + span.size).intersection(IndexRange(start, stop))
        yield IndexRange(span.first + part.first - before, span.first + part.end - before)
        before += span.size


def _positions(spans: IndexRanges, subset: IndexRanges) -> Iterator[IndexRange]:
    before = 0
    for span in spans:
        for part in intersect_ranges((span,), subset):
            yield IndexRange(before + part.first - span.first, before + part.end - span.first)
        before += span.size


def ring_tokens(ranks: int, position: int, seq_len: int) -> IndexRanges:
    """Tokens of a ring rank.

    Pieces ``position`` and ``2 ranks - 1 - position``.
    """
    if ranks == 1:
        return (IndexRange(0, seq_len),)
    piece = seq_len // (2 * ranks)
    late = 2 * ranks - 1 - position
    return merge_ranges(IndexRange(i * piece, (i + 1) * piece) for i in (position, late))


def _ring_tokens_of(strategy: LayerStrategy, rank: int, seq_len: int) -> IndexRanges:
    return ring_tokens(strategy.cp, context_group(strategy).position(rank), seq_len)


def input_tokens(strategy: LayerStrategy, rank: int, seq_len: int) -> IndexRanges:
    """Input tokens of a layer on a rank, after any gather."""
    ring = _ring_tokens_of(strategy, rank, seq_len)
    return _tensor_part(strategy, rank, ring) if strategy.ulysses else ring


def local_tokens(strategy: LayerStrategy, rank: int, seq_len: int) -> IndexRanges:
    """Tokens on a rank between layers of this strategy."""
    ring = _ring_tokens_of(strategy, rank, seq_len)
    return _tensor_part(strategy, rank, ring) if strategy.layout[2] else ring


def exchanged_tokens(strategy: LayerStrategy, rank: int, seq_len: int) -> IndexRanges:
    """Tokens of a rank while all tp ranks exchange different ones."""
    return _tensor_part(strategy, rank, _ring_tokens_of(strategy, rank, seq_len))


def _tensor_part(strategy: LayerStrategy, rank: int, ring: IndexRanges) -> IndexRanges:
    return partition_range(ring, strategy.tp, tensor_group(strategy).position(rank))


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
