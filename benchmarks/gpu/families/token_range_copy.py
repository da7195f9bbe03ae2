"""Ranges of tokens into one buffer, and back."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.token_ranges.copy import gather_token_ranges, scatter_token_ranges
from shardwright.kernels.token_ranges.ranges import TokenRanges, token_ranges

RANGES = 8


def _parts(tokens: int) -> list[tuple[int, int]]:
    length = tokens // (2 * RANGES)
    return [(2 * n * length, length) for n in reversed(range(RANGES))]


def _gather_eager(x: Tensor, ranges: TokenRanges) -> Tensor:
    return torch.cat([x[start : start + length] for start, length in ranges.pieces])


def _scatter_eager(rows: Tensor, ranges: TokenRanges) -> Tensor:
    out = rows.new_zeros(ranges.tokens, rows.shape[1])
    parts = rows.split([length for _, length in ranges.pieces])
    for (start, length), part in zip(ranges.pieces, parts, strict=True):
        out[start : start + length] = part
    return out


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Half the tokens read and written; backward: all written, half zeros."""
    tokens, width = sizes.activations[-1]
    full = tokens * width * sizes.dtype.itemsize

    def ranges(make: Make) -> TokenRanges:
        starts, lengths = torch.tensor(_parts(tokens)).unbind(1)
        return token_ranges(starts, lengths, tokens, make.device)

    def whole(make: Make) -> tuple[Tensor, TokenRanges]:
        return make.normal(tokens, width), ranges(make)

    def half(make: Make) -> tuple[Tensor, TokenRanges]:
        return make.normal(tokens // 2, width), ranges(make)

    case = f"{tokens} x {width}, half of it in {RANGES} ranges"
    there = {"family": "gather_token_ranges", "case": case, "make": whole}
    back = {"family": "scatter_token_ranges", "case": case, "make": half}
    there |= {"ours": gather_token_ranges, "eager": _gather_eager, "work": Work(full)}
    back |= {"ours": scatter_token_ranges, "eager": _scatter_eager, "work": Work(3 * full // 2)}
    yield Entry(mode="forward", **there)
    yield Entry(mode="forward", **back)
