"""Position tables: rows of a rank's tokens, and T5's relative biases.

Pairs of positions fall into buckets: half of them one per short distance, half for growing ranges;
where queries see both sides, each side has half of all (Raffel et al., 2020, section 2.1). Runs
what ``shardwright.costmodel.ops.position.score_bias`` prices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ...spec.parallel.sequence_partition import IndexRanges

MAX_DISTANCE = 128
"""Distance from which on all pairs share the last bucket."""


def position_rows(table: Tensor, spans: IndexRanges) -> Tensor:
    """Rows of these tokens as one view, (spans, span length, hidden).

    ``table`` is (positions, hidden); ``spans``, token numbers in one span or two equal ones, as in
    a ring.

    Raises:
        ValueError: spans that no single view has.
    """
    first, *more = spans
    if not more:
        return table[first.first : first.end].unsqueeze(0)
    if len(more) > 1 or more[0].size != first.size:
        raise ValueError(f"position rows of tokens {spans}")
    row, column = table.stride()
    apart = more[0].first - first.first
    return table.as_strided(
        (2, first.size, table.shape[1]),
        (apart * row, row, column),
        table.storage_offset() + first.first * row,
    )


def score_bias(table: Tensor, queries: int, keys: int, both_sides: bool) -> Tensor:
    """Bias of every pair of positions.

    ``table`` is (buckets, local heads). With ``both_sides`` queries also see later keys, in buckets
    of their own.

    Returns:
        (queries, keys, local heads): heads last, since a sharded block's output must be no view.
    """
    buckets = _buckets(queries, keys, len(table), both_sides, table.device)
    return F.embedding(buckets, table)


def _buckets(queries: int, keys: int, count: int, both_sides: bool, device: torch.device) -> Tensor:
    """Bucket of each pair, (queries, keys) int64; arbitrary for masked keys."""
    order = torch.arange(keys, device=device) - torch.arange(queries, device=device).unsqueeze(1)
    side = count // 2 if both_sides else count
    distance, exact = order.abs(), max(1, side // 2)
    near = distance < exact
    far = distance.to(torch.float32).div_(exact).log_()
    far.mul_((side - exact) / math.log(max(MAX_DISTANCE, exact + 1) / exact))
    ranges = far.to(torch.int64).add_(exact)
    torch.minimum(ranges, torch.full((), side - 1, device=device), out=ranges)
    buckets = torch.where(near, distance, ranges)
    return buckets.add_(order.gt(0).mul(side)) if both_sides else buckets


__all__ = ["MAX_DISTANCE", "position_rows", "score_bias"]
