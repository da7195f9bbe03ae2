"""Gather token ranges into one buffer, and scatter them back.

Balancing sequences over ranks (Zeppelin, 2025) and swapping activations token by token (MEMO, 2024)
move ranges of many lengths. Fused, one kernel copies all of them. Gathered ranges may overlap: a
token's gradient is the sum over its copies, range by range in float32, without atomics. Scattered
ranges must not, as the winning copy would be undefined.

Into another device's memory, such as the host's, it is one copy per range: those run on the copy
engines, beside computation. Copies into pinned memory are asynchronous.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...spec.errors import InputError
from ..dispatch import Dispatcher, Family, Variant
from ..element_views import copying_unsupported
from .moves import EAGER, FUSED, RangeMoves
from .ranges import TokenRanges


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, moves: RangeMoves, source: Tensor, ranges: TokenRanges) -> Tensor:
        ctx.moves, ctx.ranges = moves, ranges
        out = source.new_empty((ranges.total, *source.shape[1:]))
        moves.gather(source, ranges, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        ranges, shape = ctx.ranges, (ctx.ranges.tokens, *grads[0].shape[1:])
        if ranges.overlap():
            out = grads[0].new_empty(shape)
            ctx.moves.add_up(grads[0], ranges, out)
        else:
            out = grads[0].new_zeros(shape)
            ctx.moves.scatter(grads[0], ranges, out)
        return None, out, None


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, moves: RangeMoves, rows: Tensor, ranges: TokenRanges) -> Tensor:
        ctx.moves, ctx.ranges = moves, ranges
        out = rows.new_zeros((ranges.tokens, *rows.shape[1:]))
        moves.scatter(rows, ranges, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        out = grads[0].new_empty((ctx.ranges.total, *grads[0].shape[1:]))
        ctx.moves.gather(grads[0], ctx.ranges, out)
        return None, out, None


def _gather(moves: RangeMoves, source: Tensor, ranges: TokenRanges, out: Tensor | None) -> Tensor:
    if out is None:
        made: Tensor = _Gather.apply(moves, source, ranges)  # type: ignore[no-untyped-call]
        return made
    moves.gather(source.detach(), ranges, out)
    return out


def _scatter(moves: RangeMoves, rows: Tensor, ranges: TokenRanges, out: Tensor | None) -> Tensor:
    if out is None:
        made: Tensor = _Scatter.apply(moves, rows, ranges)  # type: ignore[no-untyped-call]
        return made
    moves.scatter(rows.detach(), ranges, out)
    return out


GATHER_TOKEN_RANGES = Family(
    "gather_token_ranges",
    (
        Variant("triton", partial(_gather, FUSED), copying_unsupported),
        Variant("eager", partial(_gather, EAGER), fused=False),
    ),
)
"""Decided by what is copied, (tokens, …)."""

SCATTER_TOKEN_RANGES = Family(
    "scatter_token_ranges",
    (
        Variant("triton", partial(_scatter, FUSED), copying_unsupported),
        Variant("eager", partial(_scatter, EAGER), fused=False),
    ),
)
"""Decided by what is copied, (rows, …)."""


def _check(name: str, x: Tensor, count: int, out: Tensor | None, out_count: int) -> None:
    if not x.ndim or x.shape[0] != count:
        raise InputError(name, f"shape {tuple(x.shape)}", f"({count}, …)")
    if out is None:
        return
    shape = (out_count, *x.shape[1:])
    if out.dtype != x.dtype or tuple(out.shape) != shape:
        description = f"{out.dtype} of shape {tuple(out.shape)}"
        raise InputError("out", description, f"{x.dtype} of shape {shape}")
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        allowed = "a buffer where no gradient is needed"
        raise InputError("out", "a buffer in a differentiable copy", allowed, "torch.no_grad()")


def gather_token_ranges(
    kernels: Dispatcher, source: Tensor, ranges: TokenRanges, out: Tensor | None = None
) -> Tensor:
    """The ranges' tokens one after another, (ranges.total, …).

    Args:
        kernels: of the run.
        source: (tokens, …), any type, any strides.
        ranges: of these tokens, on their device; they may overlap.
        out: written in place, without extra memory or gradients, on any device.

    Raises:
        InputError: shapes or types that do not fit; ``out`` where gradients are needed.
    """
    _check("source", source, ranges.tokens, out, ranges.total)
    if out is not None and out.device != source.device:
        return _gather(EAGER, source, ranges, out)
    gathered: Tensor = kernels.pick(GATHER_TOKEN_RANGES, source)(source, ranges, out)
    return gathered


def scatter_token_ranges(
    kernels: Dispatcher, rows: Tensor, ranges: TokenRanges, out: Tensor | None = None
) -> Tensor:
    """Rows scattered back to their tokens, (ranges.tokens, …).

    Args:
        kernels: of the run.
        rows: (ranges.total, …), any type, any strides.
        ranges: of the tokens, on the device of ``rows``.
        out: written in place, only where a range lies, on any device and without gradients; if
            None, zeros elsewhere.

    Raises:
        InputError: ranges that overlap; shapes or types that do not fit; ``out`` where gradients
            are needed.
    """
    if both := ranges.overlap():
        (first, length), (second, _) = both
        description = f"{first} to {first + length - 1} and one from {second}"
        raise InputError("ranges", description, "ranges that share no token, to be written once")
    _check("rows", rows, ranges.total, out, ranges.tokens)
    if out is not None and out.device != rows.device:
        return _scatter(EAGER, rows, ranges, out)
    scattered: Tensor = kernels.pick(SCATTER_TOKEN_RANGES, rows)(rows, ranges, out)
    return scattered


def _tokens_of_rows(ranges: TokenRanges) -> Tensor:
    runs = [torch.arange(start, start + length) for start, length in ranges.pieces]
    return torch.cat([torch.arange(0), *runs])


def gather_reference(source: Tensor, ranges: TokenRanges) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    return source.double()[_tokens_of_rows(ranges).to(source.device)]


def scatter_reference(rows: Tensor, ranges: TokenRanges) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    out = rows.new_zeros((ranges.tokens, *rows.shape[1:]), dtype=torch.float64)
    return out.index_add(0, _tokens_of_rows(ranges).to(rows.device), rows.double())


__all__ = [
    "GATHER_TOKEN_RANGES",
    "SCATTER_TOKEN_RANGES",
    "gather_reference",
    "gather_token_ranges",
    "scatter_reference",
    "scatter_token_ranges",
]
