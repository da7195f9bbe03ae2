"""Token permutation in Triton; no two programs write one row.

Rows and their elements may be strided. Sums are taken choice by choice, in float32, or in float64
for float64.
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

_COLUMNS = 2048
"""Elements of a row that a program holds at a time."""
_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


@triton.jit
def _present(index, column, width):
    """Column mask of a row that exists.

    The index is broadcast first: the interpreter takes a scalar's truth for a number.
    """
    return (index + column * 0 >= 0) & (column < width)


@triton.jit
def _permute(
    x, order, out, width, row_stride, column_stride, TOPK: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS).to(tl.int64)
    assignment = tl.load(order + row)
    source = x + tl.maximum(assignment, 0) // TOPK * row_stride + column * column_stride
    value = tl.load(source, mask=_present(assignment, column, width), other=0)
    tl.store(out + row * width + column, value, mask=column < width)


@triton.jit
def _unpermute(
    rows, slots, weights, out, width, row_stride, column_stride,
    TOPK: tl.constexpr, COLUMNS: tl.constexpr, WEIGHTED: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Some columns of one token: the weighted sum of its rows."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS).to(tl.int64)
    total = tl.zeros((COLUMNS,), SUM)
    for choice in range(TOPK):
        slot = tl.load(slots + token * TOPK + choice)
        present = _present(slot, column, width)
        source = rows + tl.maximum(slot, 0) * row_stride + column * column_stride
        value = tl.load(source, mask=present, other=0).to(SUM)
        if WEIGHTED:
            weight = tl.load(weights + token * TOPK + choice).to(SUM)
            value *= tl.where(present, weight, 0.0)
        total += value
    tl.store(out + token * width + column, total.to(out.dtype.element_ty), mask=column < width)


@triton.jit
def _unpermute_backward(
    grad, rows, weights, slots, order, grad_rows, grad_weights, count, per_program, width,
    grad_row_stride, grad_column_stride, row_stride, column_stride,
    TOPK: tl.constexpr, COLUMNS: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Gradients of one token's rows and weights, and zeros for empty rows."""
    token = tl.program_id(0).to(tl.int64)
    inside = tl.arange(0, COLUMNS).to(tl.int64)
    for choice in range(TOPK):
        assignment = token * TOPK + choice
        slot = tl.load(slots + assignment)
        at = tl.maximum(slot, 0)
        weight = tl.load(weights + assignment).to(SUM)
        product = tl.zeros((COLUMNS,), SUM)
        for start in range(0, width, COLUMNS):
            column = start + inside
            present = _present(slot, column, width)
            coming = grad + token * grad_row_stride + column * grad_column_stride
            value = tl.load(coming, mask=present, other=0).to(SUM)
            source = rows + at * row_stride + column * column_stride
            product += value * tl.load(source, mask=present, other=0).to(SUM)
            share = (value * tl.where(present, weight, 0.0)).to(grad_rows.dtype.element_ty)
            tl.store(grad_rows + at * width + column, share, mask=present)
        gradient = tl.sum(product, axis=0).to(grad_weights.dtype.element_ty)
        tl.store(grad_weights + assignment, gradient)
    for number in range(per_program):
        row = tl.minimum(token * per_program + number, count - 1)  # a last row twice does no harm
        empty = -1 - tl.load(order + row)
        for start in range(0, width, COLUMNS):
            column = start + inside
            zero = tl.zeros((COLUMNS,), grad_rows.dtype.element_ty)
            tl.store(grad_rows + row * width + column, zero, mask=_present(empty, column, width))


def _tile(width: int) -> tuple[int, int]:
    columns = min(_COLUMNS, triton.next_power_of_2(width))
    return columns, triton.cdiv(width, columns)


def permute(x: Tensor, order: Tensor, topk: int, out: Tensor) -> None:
    """Write (rows, width) ``out`` of the type of (tokens, width) ``x``."""
    if not out.numel():
        return
    columns, parts = _tile(out.shape[1])
    with torch.cuda.device_of(out):
        _permute[(out.shape[0], parts)](
            as_integers(x), order, as_integers(out), out.shape[1], *x.stride(),
            TOPK=topk, COLUMNS=columns,
        )  # fmt: skip


def unpermute(rows: Tensor, slots: Tensor, weights: Tensor | None, out: Tensor) -> None:
    """Write (tokens, width) ``out`` of the type of ``rows``."""
    if not out.numel():
        return
    columns, parts = _tile(out.shape[1])
    with torch.cuda.device_of(out):
        _unpermute[(out.shape[0], parts)](
            rows, slots, rows if weights is None else weights, out, out.shape[1], *rows.stride(),
            TOPK=slots.shape[1], COLUMNS=columns, WEIGHTED=weights is not None,
            SUM=_TYPES[summing_type(rows.dtype)], enable_fp_fusion=False,
        )  # fmt: skip


def unpermute_backward(
    grad: Tensor, rows: Tensor, weights: Tensor, slots: Tensor, order: Tensor,
    grad_rows: Tensor, grad_weights: Tensor,
) -> None:  # fmt: skip
    """Write gradients of rows and weights; only ``grad``, ``rows`` may be strided."""
    tokens, (count, width) = slots.shape[0], grad_rows.shape
    if not tokens or not width:
        grad_rows.zero_()
        grad_weights.zero_()
        return
    with torch.cuda.device_of(grad):
        _unpermute_backward[(tokens,)](
            grad, rows, weights, slots, order, grad_rows, grad_weights,
            count, triton.cdiv(count, tokens), width, *grad.stride(), *rows.stride(),
            TOPK=slots.shape[1], COLUMNS=_tile(width)[0], SUM=_TYPES[summing_type(rows.dtype)],
            enable_fp_fusion=False,
        )  # fmt: skip


__all__ = ["permute", "unpermute", "unpermute_backward"]
