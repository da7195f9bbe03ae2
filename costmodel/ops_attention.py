"""Causal self-attention as symbolic work: flash, or products around a masked softmax.

Query is (seq, batch, heads, head_dim), key and value the same with their own heads. FLOPs
count the whole score matrix; a causal kernel does about half of them, which is the pricing's
business, not the count's.
"""

from __future__ import annotations

from .ops import OpContext
from .tape import Tape, Value

FLASH_FORWARD_PRODUCTS = 2
FLASH_BACKWARD_PRODUCTS = 5


def attention(c: OpContext, query: Value, key: Value, value: Value) -> Value:
    """Core attention by the stack's implementation; (seq, batch, heads · head_dim)."""
    if c.stack.attention == "flash":
        return _flash(c, query, key, value)
    groups = query.shape[2] // key.shape[2]
    if groups > 1 and not c.stack.fusion.softmax:
        key, value = (_repeat_heads(c.tape, x, groups) for x in (key, value))
    return _unfused(c, query, key, value)


def _flash(c: OpContext, query: Value, key: Value, value: Value) -> Value:
    t = c.tape
    seq, batch, heads, dim = query.shape
    kv_heads = key.shape[2]
    shape = (batch, heads, kv_heads, seq, dim)
    per_product = 2 * batch * heads * seq * seq * dim
    out = t.like(query)
    log_sum = t.new((batch, heads, seq), "fp32")
    kept = (query, key, value, out, log_sum)
    flops = FLASH_FORWARD_PRODUCTS * per_product
    t.shaped_kernel("flash_attention", shape, c.dtype, flops, sum(x.size_bytes for x in kept))
    joined = out.view(seq, batch, heads * dim)

    def backward(grad: Value) -> tuple[Value | None, ...]:
        gradients = tuple(t.like(x) for x in kept[:3])
        traffic = sum(x.size_bytes for x in (grad, *kept, *gradients))
        flops = FLASH_BACKWARD_PRODUCTS * per_product
        t.shaped_kernel("flash_attention_backward", shape, c.dtype, flops, traffic)
        return gradients

    t.record((joined,), (query, key, value), backward)
    return joined


def _repeat_heads(t: Tape, x: Value, groups: int) -> Value:
    """Key or value heads repeated for their query heads, a copy."""
    shape = x.shape
    repeated = (*shape[:2], shape[2] * groups, shape[3])
    out = t.kernel("copy", (x,), t.new(repeated, x.dtype))

    def backward(grad: Value) -> tuple[Value | None, ...]:
        return (t.kernel("sum", (grad,), t.new(shape, grad.dtype)),)

    t.record((out,), (x,), backward)
    return out


def _batched_product(c: OpContext, batch: int, m: int, k: int, n: int) -> Value:
    """(batch, m, k) · (batch, k, n)."""
    t = c.tape
    out = t.new((batch, m, n), c.dtype)
    traffic = (batch * (m * k + k * n)) * out.size_bytes // out.elements + out.size_bytes
    shape = (batch, m, k, n)
    t.shaped_kernel("batched_matmul", shape, c.dtype, 2 * batch * m * k * n, traffic)
    return out


def _unfused(c: OpContext, query: Value, key: Value, value: Value) -> Value:
    t = c.tape
    seq, batch, heads, dim = query.shape
    rows = batch * heads
    scores = _batched_product(c, rows, seq, dim, seq)
    probabilities = _masked_softmax(c, scores, seq)
    del scores
    mixed = _batched_product(c, rows, seq, seq, dim)
    out = t.kernel("copy", (mixed,), t.like(query)).view(seq, batch, heads * dim)
    del mixed
    kept = (query, key, value)

    def backward(grad: Value) -> tuple[Value | None, ...]:
        grad_value = _batched_product(c, rows, seq, seq, dim)
        grad_scores = _batched_product(c, rows, seq, dim, seq)
        grad_scores = _softmax_backward(c, grad_scores, probabilities)
        grad_query = _batched_product(c, rows, seq, seq, dim)
        grad_key = _batched_product(c, rows, seq, seq, dim)
        del grad_scores
        return tuple(
            g.view(*x.shape) for g, x in zip((grad_query, grad_key, grad_value), kept, strict=True)
        )

    t.record((out,), (query, key, value), backward)
    return out


def _masked_softmax(c: OpContext, scores: Value, seq: int) -> Value:
    """Scale, causal mask and softmax; one kernel in a fused stack."""
    t = c.tape
    if c.stack.fusion.softmax:
        return t.kernel("masked_softmax", (scores,), t.like(scores))
    t.kernel("mul", (scores,), scores)
    mask = t.new((seq, seq), "bool")
    t.kernel("ones", (), mask)
    t.kernel("triu", (mask,), mask)
    t.kernel("masked_fill", (scores, mask), scores)
    return t.kernel("softmax", (scores,), t.like(scores))


def _softmax_backward(c: OpContext, grad: Value, probabilities: Value) -> Value:
    t = c.tape
    if c.stack.fusion.softmax:
        return t.kernel("masked_softmax_backward", (grad, probabilities), grad)
    out = t.kernel("softmax_backward", (grad, probabilities), t.like(grad))
    return t.kernel("mul", (out,), out)
