"""Token permutation into rows by expert, and back by weighted sum.

A token has a row per chosen expert. Permuting copies it there; unpermuting sums its rows, each
times its weight, in float32. Each is the gradient of the other. Every row and token is written by
one place, by index and without atomics, so results are deterministic. With a capacity some
assignments are dropped and some rows empty: these give and receive zeros (index -1, see
:mod:`expert_order`).

Fused names are the cost model's: ``permute``, ``unpermute``, ``unpermute_backward``. Indices are
not checked, which would mean waiting for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from ...spec.errors import InputError
from ..dispatch import Dispatcher, Family, Variant
from ..element_views import as_integers, copying_unsupported, summing_type, summing_unsupported
from ..fused import operation
from .expert_order import ExpertOrder


def _fake_permute(x: Tensor, order: Tensor, topk: int) -> Tensor:
    return x.new_empty((order.shape[0], x.shape[1]))


@operation("permute(Tensor x, Tensor order, int topk) -> Tensor", _fake_permute)
def _fused_permute(x: Tensor, order: Tensor, topk: int) -> Tensor:
    from . import token_permutation_triton as kernel

    out = _fake_permute(x, order, topk)
    kernel.permute(x, order, topk, out)
    return out


def _fake_unpermute(rows: Tensor, slots: Tensor, weights: Tensor | None) -> Tensor:
    return rows.new_empty((slots.shape[0], rows.shape[1]))


@operation("unpermute(Tensor rows, Tensor slots, Tensor? weights) -> Tensor", _fake_unpermute)
def _fused_unpermute(rows: Tensor, slots: Tensor, weights: Tensor | None) -> Tensor:
    from . import token_permutation_triton as kernel

    out = _fake_unpermute(rows, slots, weights)
    kernel.unpermute(rows, slots, None if weights is None else weights.contiguous(), out)
    return out


def _fake_backward(
    grad: Tensor, rows: Tensor, weights: Tensor, slots: Tensor, order: Tensor
) -> tuple[Tensor, Tensor]:
    return rows.new_empty(rows.shape), weights.new_empty(weights.shape)


@operation(
    "unpermute_backward(Tensor grad, Tensor rows, Tensor weights, Tensor slots, Tensor order)"
    " -> (Tensor, Tensor)",
    _fake_backward,
)
def _fused_backward(
    grad: Tensor, rows: Tensor, weights: Tensor, slots: Tensor, order: Tensor
) -> tuple[Tensor, Tensor]:
    from . import token_permutation_triton as kernel

    outs = _fake_backward(grad, rows, weights, slots, order)
    kernel.unpermute_backward(grad, rows, weights.contiguous(), slots, order, *outs)
    return outs


def _rows_at(x: Tensor, index: Tensor) -> Tensor:
    """(index, width): rows of ``x`` at ``index``, zeros where it is negative."""
    if not x.shape[0]:
        return x.new_zeros((index.shape[0], x.shape[1]))
    bits = as_integers(x)  # some narrow types have no operations of their own
    gathered = bits.index_select(0, index.clamp(min=0))
    return gathered.masked_fill_((index < 0).unsqueeze(1), 0).view(x.dtype)


def _permute(x: Tensor, order: Tensor, topk: int) -> Tensor:
    return _rows_at(x, order.div(topk, rounding_mode="floor"))


def _unpermute(rows: Tensor, slots: Tensor, weights: Tensor | None) -> Tensor:
    dtype = summing_type(rows.dtype)
    total = torch.zeros((slots.shape[0], rows.shape[1]), dtype=dtype, device=rows.device)
    for choice, slot in enumerate(slots.unbind(1)):
        part = _rows_at(rows, slot).to(dtype)
        if weights is not None:
            weight = weights[:, choice].to(dtype).masked_fill(slot < 0, 0)
            part = part * weight.unsqueeze(1)
        total += part
    return total.to(rows.dtype)


def _unpermute_backward(
    grad: Tensor, rows: Tensor, weights: Tensor, slots: Tensor, order: Tensor
) -> tuple[Tensor, Tensor]:
    dtype, topk = summing_type(rows.dtype), slots.shape[1]
    weight = _rows_at(weights.reshape(-1, 1), order).to(dtype)
    grad_rows = _permute(grad, order, topk).to(dtype).mul_(weight).to(rows.dtype)
    wide = grad.to(dtype)
    products = [(wide * _rows_at(rows, slot)).sum(1) for slot in slots.unbind(1)]
    kept = torch.stack(products, dim=1).masked_fill_(slots < 0, 0)
    return grad_rows, kept.to(weights.dtype)


class _Moves(NamedTuple):
    permute: Callable[..., Any]
    unpermute: Callable[..., Any]
    unpermute_backward: Callable[..., Any]


class _Permute(Function):
    @staticmethod
    def forward(ctx: Any, moves: _Moves, x: Tensor, order: Tensor, slots: Tensor) -> Tensor:
        ctx.moves = moves
        ctx.save_for_backward(slots)
        out: Tensor = moves.permute(x, order, slots.shape[1])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        return None, ctx.moves.unpermute(grads[0], slots, None), None, None


class _Unpermute(Function):
    @staticmethod
    def forward(
        ctx: Any, moves: _Moves, rows: Tensor, weights: Tensor | None, order: Tensor, slots: Tensor
    ) -> Tensor:
        ctx.moves, ctx.weighted = moves, weights is not None
        ctx.save_for_backward(order, slots, *((rows, weights) if weights is not None else ()))
        out: Tensor = moves.unpermute(rows, slots, weights)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor | None, None, None]:
        order, slots, *kept = ctx.saved_tensors
        if not ctx.weighted:
            return None, ctx.moves.permute(grads[0], order, slots.shape[1]), None, None, None
        rows, weights = kept
        gradients = ctx.moves.unpermute_backward(grads[0], rows, weights, slots, order)
        return None, *gradients, None, None


_FUSED = _Moves(_fused_permute, _fused_unpermute, _fused_backward)
_EAGER = _Moves(_permute, _unpermute, _unpermute_backward)

PERMUTE = Family(
    "permute",
    (
        Variant("triton", partial(_Permute.apply, _FUSED), copying_unsupported),
        Variant("eager", partial(_Permute.apply, _EAGER), fused=False),
    ),
)
"""Decided by the tokens, (tokens, width)."""

UNPERMUTE = Family(
    "unpermute",
    (
        Variant("triton", partial(_Unpermute.apply, _FUSED), summing_unsupported),
        Variant("eager", partial(_Unpermute.apply, _EAGER), fused=False),
    ),
)
"""Decided by the rows, (rows, width)."""


def permute(kernels: Dispatcher, x: Tensor, order: ExpertOrder) -> Tensor:
    """(rows, width): each row's token, or zeros.

    Args:
        kernels: of the run.
        x: (tokens, width), any type, any strides.
        order: of these tokens.

    Raises:
        InputError: ``x`` has other than two axes, or other tokens than ``order``.
    """
    if x.ndim != 2 or x.shape[0] != order.slots.shape[0]:
        raise InputError("x", f"shape {tuple(x.shape)}", f"({order.slots.shape[0]}, width)")
    out: Tensor = kernels.pick(PERMUTE, x)(x, order.order, order.slots)
    return out


def unpermute(
    kernels: Dispatcher, rows: Tensor, order: ExpertOrder, weights: Tensor | None = None
) -> Tensor:
    """(tokens, width): sum of each token's rows, optionally weighted.

    Args:
        kernels: of the run.
        rows: (rows, width) floats, any strides.
        order: of ``rows``.
        weights: (tokens, topk) floats of any type; None where the rows carry them already.

    Raises:
        InputError: shapes that do not belong together.
    """
    if rows.ndim != 2 or rows.shape[0] != order.order.shape[0]:
        raise InputError("rows", f"shape {tuple(rows.shape)}", f"({order.order.shape[0]}, width)")
    if weights is not None and weights.shape != order.slots.shape:
        raise InputError("weights", tuple(weights.shape), f"shape {tuple(order.slots.shape)}")
    out: Tensor = kernels.pick(UNPERMUTE, rows)(rows, weights, order.order, order.slots)
    return out


def _with_a_row_of_zeros(x: Tensor) -> Tensor:
    """In float64, so that index -1 is zeros."""
    return torch.cat((x.double(), x.new_zeros(1, x.shape[1], dtype=torch.float64)))


def permute_reference(x: Tensor, order: ExpertOrder) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    token = order.order.div(order.slots.shape[1], rounding_mode="floor")
    return _with_a_row_of_zeros(x)[token]


def unpermute_reference(rows: Tensor, order: ExpertOrder, weights: Tensor | None = None) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    theirs = _with_a_row_of_zeros(rows)[order.slots]
    return (theirs if weights is None else theirs * weights.double().unsqueeze(-1)).sum(1)


__all__ = [
    "PERMUTE",
    "UNPERMUTE",
    "permute",
    "permute_reference",
    "unpermute",
    "unpermute_reference",
]
