"""Combination of the experts' rows into tokens."""

from __future__ import annotations

from ...symbolic.tape import SymbolicTensor
from ..context import OpContext, cast
from .order import sum_by_token


def combine(
    c: OpContext, rows: SymbolicTensor, order: SymbolicTensor, shape: tuple[int, ...]
) -> SymbolicTensor:
    """Sum already weighted rows by token."""
    t, rows_shape = c.tape, rows.shape
    out = sum_by_token(c, rows, order, shape)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        scattered = t.new(rows_shape, grad.dtype)
        op = "permute" if c.stack.fusion.permute else "gather"
        return (t.kernel(op, (scattered, order), scattered),)

    t.record((out,), (rows,), backward)
    return out


def weighted_combine(
    c: OpContext,
    rows: SymbolicTensor,
    weights: SymbolicTensor,
    order: SymbolicTensor,
    shape: tuple[int, ...],
) -> SymbolicTensor:
    """Sum rows times their weights by token; keeps rows and weights.

    The plain form multiplies and sums in fp32, the weights' format.
    """
    t = c.tape
    if c.stack.fusion.permute:
        out = t.kernel("unpermute", (rows, weights, order), t.new(shape, rows.dtype))
    else:
        wide = t.kernel("mul", (rows, weights), t.like(rows, "fp32"))
        out = cast(t, sum_by_token(c, wide, order, shape), rows.dtype)
        del wide

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_rows, grad_weights = t.like(rows), t.like(weights)
        if c.stack.fusion.permute:
            t.kernel("unpermute_backward", (grad, rows, weights, order, grad_weights), grad_rows)
            return grad_rows, grad_weights
        grad = cast(t, grad, "fp32")
        scattered = t.like(rows, "fp32")
        t.kernel("gather", (scattered, order), scattered)
        t.kernel("mul", (scattered, weights), grad_rows)
        t.kernel("mul", (scattered, rows), scattered)
        t.kernel("sum", (scattered,), grad_weights)
        return grad_rows, grad_weights

    t.record((out,), (rows, weights), backward)
    return out
