"""SoftMoE: slots of experts mix the tokens of a sample, tokens the outputs of slots.

Follows ``shardwright.executor.models.moe.soft``.
"""

from __future__ import annotations

from ....spec.model.feed_forward import Moe
from ....spec.workload.number_formats import rate_name, tensor_bytes
from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext, cast


def mix_tokens(c: OpContext, moe: Moe, x: SymbolicTensor, logits: SymbolicTensor) -> SymbolicTensor:
    """(experts · batch · slots, width) rows of (seq, batch, width) tokens; keeps both inputs."""
    t, (seq, batch, width), outputs = c.tape, x.shape, moe.router_outputs
    shares, dtype = _shares(t, logits), logits.dtype
    operand = cast(t, shares, x.dtype)
    _products(t, batch, outputs, seq, width, x.dtype)
    del operand
    rows = t.new((outputs * batch, width), x.dtype)
    _by_expert(t, moe, batch, rows)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        _by_expert(t, moe, batch, grad)
        operand = cast(t, shares, x.dtype)
        grad_x = t.new((seq, batch, width), x.dtype)
        _products(t, batch, seq, outputs, width, x.dtype)
        del operand
        _products(t, batch, seq, width, outputs, x.dtype)
        grad_shares = cast(t, t.new(logits.shape, x.dtype), "fp32")
        made = t.kernel("softmax_backward", (grad_shares, shares), t.like(shares))
        return grad_x, cast(t, made, dtype)

    t.record((rows,), (x, logits), backward)
    return rows


def mix_slots(
    c: OpContext, moe: Moe, rows: SymbolicTensor, logits: SymbolicTensor
) -> SymbolicTensor:
    """(seq, batch, width) tokens of the experts' rows; keeps those and the shares."""
    t, (seq, batch, outputs), width = c.tape, logits.shape, rows.shape[1]
    shares, dtype, form = _shares(t, logits), logits.dtype, rows.dtype
    slots = _by_expert(t, moe, batch, rows)
    operand = cast(t, shares, form)
    _products(t, batch, seq, outputs, width, form)
    del operand
    out = t.new((seq, batch, width), form)
    if batch > 1:
        t.kernel("copy", (out,), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        operand = cast(t, shares, form)
        _products(t, batch, outputs, seq, width, form)
        del operand
        _products(t, batch, seq, width, outputs, form)
        grad_shares = cast(t, t.new(logits.shape, form), "fp32")
        made = t.kernel("softmax_backward", (grad_shares, shares), t.like(shares))
        grad_rows = t.like(slots)
        return _by_expert(t, moe, batch, grad_rows), cast(t, made, dtype)

    t.record((out,), (rows, logits), backward)
    return out


def _shares(t: Tape, logits: SymbolicTensor) -> SymbolicTensor:
    wide = cast(t, logits, "fp32")
    return t.kernel("softmax", (wide,), t.like(wide))


def _by_expert(t: Tape, moe: Moe, batch: int, rows: SymbolicTensor) -> SymbolicTensor:
    """Rows by sample in the order of experts, or back: a copy."""
    if batch == 1 or moe.experts == 1:
        return rows
    return t.kernel("copy", (rows,), t.like(rows))


def _products(t: Tape, batch: int, m: int, k: int, n: int, dtype: str) -> None:
    """A product of (m, k) by (k, n) for each sample."""
    traffic = batch * tensor_bytes(m * k + k * n + m * n, dtype)
    flops = 2 * batch * m * k * n
    t.shaped_kernel("batched_matmul", (batch, m, k, n), rate_name(dtype), flops, traffic)
