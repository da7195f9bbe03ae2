"""Token-range copies in Triton: one launch for ranges of any length.

A program copies some rows of the joined copy, locating each row's source by bisection.
"""

# Triton's language has the looks of Python and types of its own.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..element_views import as_integers, summing_type

_TILE = 4096
_MOST_COLUMNS = 1024
_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


@triton.jit
def _token_of(row, ends, shifts, count, STEPS: tl.constexpr):
    low = row * 0
    high = low + count
    for _ in tl.static_range(STEPS):
        middle = (low + high) // 2
        before = tl.load(ends + tl.minimum(middle, count - 1)) <= row
        searching = low < high
        high = tl.where(searching & (before == 0), middle, high)
        low = tl.where(searching & before, middle + 1, low)
    return row + tl.load(shifts + tl.minimum(low, count - 1))


@triton.jit
def _copy(
    source, target, ends, shifts, count, total, width,
    source_row, source_column, target_row, target_column,
    STEPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SCATTER: tl.constexpr,
):  # fmt: skip
    """Copy some columns of ROWS rows from or to their tokens."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    token = _token_of(row, ends, shifts, count, STEPS)
    present = (row < total)[:, None] & (column < width)[None, :]
    taken, put = token, row
    if SCATTER:
        taken, put = row, token
    from_ = source + (taken * source_row)[:, None] + (column * source_column)[None, :]
    to = target + (put * target_row)[:, None] + (column * target_column)[None, :]
    tl.store(to, tl.load(from_, mask=present, other=0), mask=present)


@triton.jit
def _sum(
    rows, target, starts, ends, shifts, count, tokens, width, row_stride, column_stride,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Sum some columns of ROWS tokens over all ranges, in order."""
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), SUM)
    for number in range(count):
        row = token - tl.load(shifts + number)
        inside = (token >= tl.load(starts + number)) & (row < tl.load(ends + number))
        source = rows + (row * row_stride)[:, None] + (column * column_stride)[None, :]
        present = inside[:, None] & (column < width)[None, :]
        total += tl.load(source, mask=present, other=0).to(SUM)
    to = target + (token * width)[:, None] + column[None, :]
    present = (token < tokens)[:, None] & (column < width)[None, :]
    tl.store(to, total.to(target.dtype.element_ty), mask=present)


def _geometry(rows: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    columns = min(_MOST_COLUMNS, triton.next_power_of_2(width))
    height = max(1, min(_TILE // columns, triton.next_power_of_2(rows)))
    grid = (triton.cdiv(rows, height), triton.cdiv(width, columns))
    return grid, {"ROWS": height, "COLUMNS": columns}


def copy(source: Tensor, target: Tensor, ends: Tensor, shifts: Tensor, scatter: bool) -> None:
    """Copy between (tokens, width) and the joined (total, width), either way."""
    total, width = (source if scatter else target).shape
    if not total or not width:
        return
    grid, sizes = _geometry(total, width)
    count = ends.numel()
    with torch.cuda.device_of(target):
        _copy[grid](
            as_integers(source), as_integers(target), ends, shifts, count, total, width,
            *source.stride(), *target.stride(),
            STEPS=count.bit_length(), SCATTER=scatter, **sizes,
        )  # fmt: skip


def add_up(rows: Tensor, target: Tensor, starts: Tensor, ends: Tensor, shifts: Tensor) -> None:
    """Write each token's row sum, or zeros, to contiguous (tokens, width) ``target``."""
    tokens, width = target.shape
    if not tokens or not width:
        return
    grid, sizes = _geometry(tokens, width)
    with torch.cuda.device_of(target):
        _sum[grid](
            rows, target, starts, ends, shifts, ends.numel(), tokens, width, *rows.stride(),
            SUM=_TYPES[summing_type(rows.dtype)], **sizes,
        )  # fmt: skip


__all__ = ["add_up", "copy"]
