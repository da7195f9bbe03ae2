"""Rows of a table of positions that belong to a rank's tokens."""

from __future__ import annotations

from torch import Tensor

from ...spec.parallel.sequence_partition import IndexRanges


def position_rows(table: Tensor, held: IndexRanges) -> Tensor:
    """The rows of these tokens as one view, (spans, tokens of a span, hidden).

    Args:
        table: (positions, hidden).
        held: token numbers, in one span or in two that are equally long, as those of a ring are.

    Raises:
        ValueError: spans that no single view has.
    """
    first, *more = held
    if not more:
        return table[first.first : first.end].unsqueeze(0)
    if len(more) > 1 or more[0].size != first.size:
        raise ValueError(f"position rows of tokens {held}")
    row, column = table.stride()
    apart = more[0].first - first.first
    return table.as_strided(
        (2, first.size, table.shape[1]),
        (apart * row, row, column),
        table.storage_offset() + first.first * row,
    )


__all__ = ["position_rows"]
