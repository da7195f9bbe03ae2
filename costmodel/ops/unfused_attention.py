"""Core attention as products around a masked softmax."""

from __future__ import annotations

from ..symbolic.tape import SymbolicTensor, Tape
from .attention_mask import Scores
from .context import OpContext
from .dropout import dropped


def unfused_attention(
    c: OpContext,
    scores: Scores,
    query: SymbolicTensor,
    key: SymbolicTensor,
    value: SymbolicTensor,
    bias: SymbolicTensor | None = None,
) -> SymbolicTensor:
    """Products of all queries with all keys, whatever the mask.

    Keeps the probabilities, and after dropout the dropped ones too.
    """
    t = c.tape
    seq, batch, heads, dim = query.shape
    keys, width = key.shape[0], value.shape[-1]
    rows = batch * heads
    logits = _scaled(c, batched_product(c, rows, seq, dim, keys))
    cap = _capped(c, logits) if scores.softcap else None
    probabilities = _masked_softmax(c, scores, logits if bias is None else _add(t, logits, bias))
    del logits
    dropped_probabilities, mask = (
        dropped(c, probabilities) if scores.drops else (probabilities, None)
    )
    mixed = batched_product(c, rows, seq, keys, width)
    out = t.kernel("copy", (mixed,), t.new((seq, batch, heads, width), query.dtype))
    out = out.view(seq, batch, heads * width)
    del mixed
    saved = (query, key, value)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        nonlocal dropped_probabilities
        grad_value = batched_product(c, rows, keys, seq, width)
        grad_scores = batched_product(c, rows, seq, width, keys)
        del dropped_probabilities
        if mask is not None:
            grad_scores = t.kernel("dropout_backward", (grad_scores, mask), t.like(grad_scores))
        grad_scores = _softmax_backward(c, scores, grad_scores, probabilities, heads)
        grad_bias = None if bias is None else t.kernel("sum", (grad_scores,), t.like(bias))
        if cap is not None:
            grad_scores = t.kernel("tanh_backward", (grad_scores, cap), t.like(grad_scores))
        grad_scores = _unscaled(c, grad_scores)
        grad_query = batched_product(c, rows, seq, keys, dim)
        grad_key = batched_product(c, rows, keys, seq, dim)
        del grad_scores
        gradients = (grad_query, grad_key, grad_value)
        shaped = tuple(g.view(*x.shape) for g, x in zip(gradients, saved, strict=True))
        return shaped if bias is None else (*shaped, grad_bias)

    t.record((out,), saved if bias is None else (*saved, bias), backward)
    return out


def batched_product(c: OpContext, batch: int, m: int, k: int, n: int) -> SymbolicTensor:
    """(batch, m, k) · (batch, k, n)."""
    t = c.tape
    out = t.new((batch, m, n), c.dtype)
    traffic = (batch * (m * k + k * n)) * out.size_bytes // out.elements + out.size_bytes
    shape = (batch, m, k, n)
    t.shaped_kernel("batched_matmul", shape, c.dtype, 2 * batch * m * k * n, traffic)
    return out


def _scaled(c: OpContext, scores: SymbolicTensor) -> SymbolicTensor:
    return scores if c.stack.fusion.softmax else c.tape.kernel("mul", (scores,), scores)


def _unscaled(c: OpContext, grad: SymbolicTensor) -> SymbolicTensor:
    return grad if c.stack.fusion.softmax else c.tape.kernel("mul", (grad,), grad)


def _add(t: Tape, scores: SymbolicTensor, bias: SymbolicTensor) -> SymbolicTensor:
    return t.kernel("add", (scores, bias), scores)


def _capped(c: OpContext, scores: SymbolicTensor) -> SymbolicTensor:
    """``cap · tanh(scores / cap)``; keeps the tangent, overwrites the scores."""
    t = c.tape
    t.kernel("div", (scores,), scores)
    tangent = t.kernel("tanh", (scores,), t.like(scores))
    t.kernel("mul", (tangent,), scores)
    return tangent


def _masked_softmax(c: OpContext, scores: Scores, logits: SymbolicTensor) -> SymbolicTensor:
    """Mask and softmax, one kernel if fused; sinks are one more column."""
    t = c.tape
    _, seq, keys = logits.shape
    mask = None
    if scores.mask == "causal" and not c.stack.fusion.softmax:
        mask = _mask(t, scores, seq, keys)  # alive until the softmax is done
        t.kernel("masked_fill", (logits, mask), logits)
    if scores.sinks:
        wide = t.new((logits.shape[0], seq, keys + 1), logits.dtype)
        logits = t.kernel("copy", (logits,), wide)
    op = "masked_softmax" if c.stack.fusion.softmax else "softmax"
    return t.kernel(op, (logits,), t.like(logits))


def _mask(t: Tape, scores: Scores, seq: int, keys: int) -> SymbolicTensor:
    """True for hidden keys: later ones, and those before the query's window."""
    mask = t.new((seq, keys), "bool")
    t.kernel("ones", (), mask)
    t.kernel("triu", (mask,), mask)
    if scores.windowed(keys):
        old = t.kernel("ones", (), t.new((seq, keys), "bool"))
        t.kernel("tril", (old,), old)
        t.kernel("logical_or", (mask, old), mask)
    return mask


def _softmax_backward(
    c: OpContext, scores: Scores, grad: SymbolicTensor, probabilities: SymbolicTensor, heads: int
) -> SymbolicTensor:
    t = c.tape
    op = "masked_softmax_backward" if c.stack.fusion.softmax else "softmax_backward"
    if not scores.sinks:
        if c.stack.fusion.softmax:
            return t.kernel(op, (grad, probabilities), grad)
        return t.kernel(op, (grad, probabilities), t.like(grad))
    wide = t.kernel("copy", (grad,), t.like(probabilities))
    out = t.kernel(op, (wide, probabilities), t.like(wide))
    column = t.constant((*out.shape[:2], 1), out.dtype)
    t.parameter_gradient(t.kernel("sum", (column,), t.new((heads,), c.dtype)))
    return out
