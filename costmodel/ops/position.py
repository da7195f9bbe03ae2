"""Rotary embeddings and learned relative position biases."""

from __future__ import annotations

from ...spec.model.mixers import Attention
from ..symbolic.tape import SymbolicTensor, Tape
from .context import OpContext, in_order


def rope(c: OpContext, x: SymbolicTensor, dim: int | None = None) -> SymbolicTensor:
    """Rotary embedding of (seq, batch, heads, head_dim); keeps only the angle table.

    ``dim``: rotated leading channels of a head (None: all); the others are copied.
    """
    t = c.tape
    shape, dtype = x.shape, x.dtype
    rotary_dim = dim or shape[-1]
    table = t.constant((shape[0], rotary_dim // 2), c.dtype)

    def rotate(value: SymbolicTensor) -> SymbolicTensor:
        if c.stack.fusion.rope:
            return t.kernel("rope", (value, table, table), t.new(shape, dtype))
        out = t.new((*shape[:-1], rotary_dim), dtype)
        half = value.view(*shape[:-1], rotary_dim // 2)
        for _ in range(2):
            t.kernel("mul", (half, table), half)
            t.kernel("addcmul", (half, half, table), half)
        return out if rotary_dim == shape[-1] else t.kernel("copy", (value,), t.new(shape, dtype))

    out = rotate(x)
    t.record((out,), (x,), lambda grad: (rotate(grad),))
    return out


def rope_both(
    c: OpContext, query: SymbolicTensor, key: SymbolicTensor, dim: int | None, repeats: bool
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Rotary embedding of queries and keys, fused in place or in turn.

    In place, gradients out of order are copied first; those of repeated keys and from an exchange
    never are.
    """
    if not c.stack.fusion.in_place:
        return rope(c, query, dim), rope(c, key, dim)
    t, dim = c.tape, dim or query.shape[-1]
    rows = t.constant((query.shape[0] * query.shape[1], dim // 2), "fp32")

    def rotate(
        first: SymbolicTensor, second: SymbolicTensor
    ) -> tuple[SymbolicTensor, SymbolicTensor]:
        rotated = [
            SymbolicTensor((*x.shape[:-1], dim), x.dtype, x.storage) for x in (first, second)
        ]
        t.kernel("rope", (*rotated, rows, rows, rotated[1]), rotated[0])
        return first, second

    outs = tuple(SymbolicTensor(x.shape, x.dtype, x.storage) for x in rotate(query, key))

    def backward(
        grad_query: SymbolicTensor, grad_key: SymbolicTensor
    ) -> tuple[SymbolicTensor | None, ...]:
        if c.head_exchange.size > 1:
            return rotate(grad_query, grad_key)
        return rotate(in_order(c, grad_query), grad_key if repeats else in_order(c, grad_key))

    t.record(outs, (query, key), backward)
    return outs[0], outs[1]


def score_bias(
    c: OpContext, spec: Attention, heads: int, queries: int, keys: int
) -> SymbolicTensor:
    """Relative position bias, (heads, queries, keys), for local ``heads``.

    Made by the block with the table (Raffel et al., arXiv:1910.10683, section 2.1), whose gradient
    later blocks add to.
    """
    t = c.tape
    if not spec.relative_buckets:
        return _shared_bias(c, (heads, queries, keys))
    pairs = _buckets(t, (queries, keys), both_sides=spec.mask == "full")
    rows = t.new((queries, keys, heads), c.dtype)
    t.kernel("embedding", (rows,), rows)
    buckets = spec.relative_buckets

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        table = t.new((buckets, heads), c.dtype)
        t.parameter_gradient(t.kernel("embedding_backward", (grad, pairs), table))
        return ()

    bias = rows.view(heads, queries, keys)
    t.record((bias,), (), backward)
    return bias


def _buckets(t: Tape, shape: tuple[int, int], both_sides: bool) -> SymbolicTensor:
    """The bucket of every pair of positions, as in T5's reference code."""
    order = t.kernel("sub", (), t.new(shape, "int64"))
    distance = t.kernel("abs", (order,), t.like(order))
    near = t.kernel("lt", (distance,), t.new(shape, "bool"))
    far = t.kernel("cast", (distance,), t.new(shape, "fp32"))
    for op in ("div", "log", "mul"):
        t.kernel(op, (far,), far)
    ranges = t.kernel("cast", (far,), t.like(order))
    for op in ("add", "minimum"):
        t.kernel(op, (ranges,), ranges)
    buckets = t.kernel("where", (near, distance, ranges), t.like(order))
    if both_sides:
        later = t.kernel("gt", (order,), t.new(shape, "bool"))
        later = t.kernel("mul", (later,), t.like(order))
        t.kernel("add", (buckets, later), buckets)
    return buckets


def _shared_bias(c: OpContext, shape: tuple[int, ...]) -> SymbolicTensor:
    bias = c.tape.constant(shape, c.dtype)
    total = c.tape.constant(shape, c.dtype)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        c.tape.kernel("add", (grad, total), total)
        return ()

    c.tape.record((bias,), (), backward)
    return bias
