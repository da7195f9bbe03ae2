"""X-MoE's scores: cosines of tokens and experts in a small width.

Follows ``shardwright.executor.models.moe.cosine``.
"""

from __future__ import annotations

from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext, cast


def cosine_logits(c: OpContext, x: SymbolicTensor, experts: int) -> SymbolicTensor:
    """(seq, batch, experts) fp32 logits of (seq, batch, width) ``x``; keeps unit rows of both."""
    t, (seq, batch, width) = c.tape, x.shape
    tokens, shape, dtype = seq * batch, x.shape, x.dtype
    rows, row_length = _unit(t, cast(t, x, "fp32").view(tokens, width))
    columns, length = _unit(t, t.constant((experts, width), "fp32"))
    out = t.new((tokens, experts), "fp32")
    t.product(tokens, width, experts, "fp32")
    t.kernel("mul", (out,), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        wide = cast(t, grad, "fp32")
        t.kernel("sum", (t.kernel("mul", (wide, out), t.like(out)),), t.constant((1,), "fp32"))
        scaled = t.kernel("mul", (wide,), t.like(out))
        t.product(tokens, experts, width, "fp32")
        grad_rows = _unit_backward(t, rows, row_length)
        t.product(experts, tokens, width, "fp32")
        grad_columns = _unit_backward(t, columns, length)
        del scaled
        t.parameter_gradient(cast(t, grad_columns, c.dtype))
        t.parameter_gradient(t.new((1,), c.dtype))
        return (cast(t, grad_rows, dtype).view(*shape),)

    result = out.view(seq, batch, experts)
    t.record((result,), (x,), backward)
    return result


def _unit(t: Tape, x: SymbolicTensor) -> tuple[SymbolicTensor, SymbolicTensor]:
    length = t.new((x.shape[0], 1), "fp32")
    t.kernel("row_norm", (x,), length)
    t.kernel("clamp", (length,), length)
    return t.kernel("div", (x, length), t.like(x)), length


def _unit_backward(t: Tape, unit: SymbolicTensor, length: SymbolicTensor) -> SymbolicTensor:
    grad, along = t.like(unit), t.like(length)
    t.kernel("sum", (t.kernel("mul", (grad, unit), t.like(unit)),), along)
    t.kernel("addcmul", (grad, unit, along), grad)
    return t.kernel("div", (grad, length), grad)
