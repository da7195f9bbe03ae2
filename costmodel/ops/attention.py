"""Core attention and its flash form.

Query is (seq, batch, heads, key width); key and value likewise with their own tokens, heads and
widths. FLOPs count full rows within a query's range: the whole matrix for a causal mask, ``queries
· min(window, keys)`` for a sliding window, ``queries · chunk`` in chunks, and in packed documents
``queries`` times the mean tokens of a query's own; pricing skips the masked
part (``work_items.computed_fraction``). Flash kernels take keys and values of different widths
(latent attention) as they are; assumed: none pads values to the key width.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...spec.model.mixers import Attention, LatentAttention
from ...spec.report.work_items import flash_name
from ..symbolic.tape import SymbolicTensor, Tape
from .attention_mask import Scores, scores_of
from .context import OpContext
from .unfused_attention import unfused_attention

ATTENTION = ("attention",)


def attention(
    c: OpContext,
    spec: Attention | LatentAttention,
    query: SymbolicTensor,
    key: SymbolicTensor,
    value: SymbolicTensor,
    bias: SymbolicTensor | None = None,
) -> SymbolicTensor:
    """Core attention by the stack's implementation; (seq, batch, heads · value width).

    ``bias`` (heads, seq, keys) is added to the scores of the local heads; ``spec`` gives mask and
    modifiers.
    """
    scores = scores_of(spec, query.shape[0], key.shape[0], c.documents)
    if c.drops and isinstance(spec, Attention) and spec.out_bias:
        scores = replace(scores, drops=True)
    if c.stack.attention == "flash":
        if scores.documents is None or c.stack.packed_attention:
            return flash_attention(c, scores, query, key, value, bias)
        query, key, value = (_copied(c.tape, x) for x in (query, key, value))
        return _copied(c.tape, flash_attention(c, scores, query, key, value, bias))
    groups, fusion = query.shape[2] // key.shape[2], c.stack.fusion
    if groups > 1 and (fusion.across_parts or not fusion.softmax):
        key, value = (_repeat_heads(c.tape, x, groups) for x in (key, value))
    return unfused_attention(c, scores, query, key, value, bias)


def flash_attention(
    c: OpContext,
    scores: Scores,
    query: SymbolicTensor,
    key: SymbolicTensor,
    value: SymbolicTensor,
    bias: SymbolicTensor | None = None,
) -> SymbolicTensor:
    """One kernel; keeps inputs, output and a logarithm per row (Dao, 2023).

    The backward writes the gradient of ``bias``; assumed: per sample, then summed.
    """
    t = c.tape
    seq, batch, heads, _ = query.shape
    inputs = (query, key, value) if bias is None else (query, key, value, bias)
    kept = t.kept_result(ATTENTION)
    out, log_sum = flash_forward(c, scores, inputs) if kept is None else kept
    t.keep_result(ATTENTION, out, log_sum)
    del kept
    joined = out.view(seq, batch, heads * value.shape[-1])

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        sample_bias_gradient = None if bias is None else t.new((batch, *bias.shape), bias.dtype)
        gradients = flash_backward(c, scores, inputs, (out, log_sum), grad, sample_bias_gradient)
        if scores.sinks:
            _sink_gradient(c, heads, log_sum)
        if bias is None or sample_bias_gradient is None:
            return gradients
        return (*gradients, t.kernel("sum", (sample_bias_gradient,), t.like(bias)))

    t.record((joined,), inputs, backward)
    return joined


def flash_forward(
    c: OpContext, scores: Scores, inputs: tuple[SymbolicTensor, ...]
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Output by heads and each row's logarithm, from q, k, v (bias)."""
    t = c.tape
    query, key, value, *_ = inputs
    seq, batch, heads, dim = query.shape
    op, shape = _flash_shape(scores, query, key, value)
    out = t.new((seq, batch, heads, value.shape[-1]), query.dtype)
    log_sum = t.new((batch, heads, seq), "fp32")
    flops = 2 * batch * heads * seq * scores.visible_keys * (dim + value.shape[-1])
    traffic = sum(x.size_bytes for x in (*inputs, out, log_sum))
    t.shaped_kernel(op, shape, c.dtype, flops, traffic)
    return out, log_sum


def flash_backward(
    c: OpContext,
    scores: Scores,
    inputs: tuple[SymbolicTensor, ...],
    results: tuple[SymbolicTensor, SymbolicTensor],
    grad: SymbolicTensor,
    bias_gradient: SymbolicTensor | None = None,
) -> tuple[SymbolicTensor, ...]:
    """Recompute the scores, then four products: gradients of query, key and value."""
    t = c.tape
    query, key, value, *_ = inputs
    seq, batch, heads, dim = query.shape
    op, shape = _flash_shape(scores, query, key, value)
    gradients = tuple(t.like(x) for x in (query, key, value))
    written = gradients if bias_gradient is None else (*gradients, bias_gradient)
    traffic = sum(x.size_bytes for x in (grad, *inputs, *results, *written))
    flops = 2 * batch * heads * seq * scores.visible_keys * (3 * dim + 2 * value.shape[-1])
    t.shaped_kernel(f"{op}_backward", shape, c.dtype, flops, traffic)
    return gradients


def _flash_shape(
    scores: Scores, query: SymbolicTensor, key: SymbolicTensor, value: SymbolicTensor
) -> tuple[str, tuple[int, ...]]:
    """Name and sizes of the kernel; plain causal ones have five sizes.

    Chunks of a sequence are sequences of their own.
    """
    seq, batch, heads, dim = query.shape
    if scores.documents is not None:
        count, length = _equal_documents(batch * seq, scores.documents)
        op = flash_name("causal", value.shape[-1] == dim)
        if value.shape[-1] == dim:
            return op, (count, heads, key.shape[2], length, dim)
        return op, (count, heads, key.shape[2], length, length, dim, value.shape[-1], length)
    if scores.chunk is not None:
        chunk, batch = scores.chunk, batch * -(-seq // scores.chunk)
        plain = scores.mask == "causal" and value.shape[-1] == dim
        op = flash_name(scores.mask, plain)
        if plain:
            return op, (batch, heads, key.shape[2], chunk, dim)
        sizes = (batch, heads, key.shape[2], chunk, chunk, dim, value.shape[-1])
        return op, sizes if scores.mask == "full" else (*sizes, chunk)
    square = key.shape[0] == seq and value.shape[-1] == dim
    plain = scores.mask == "causal" and square and scores.visible_keys == seq
    op = flash_name(scores.mask, plain)
    if plain:
        return op, (batch, heads, key.shape[2], seq, dim)
    sizes = (batch, heads, key.shape[2], seq, key.shape[0], dim, value.shape[-1])
    return op, sizes if scores.mask == "full" else (*sizes, scores.visible_keys)


def _equal_documents(tokens: int, mean: float) -> tuple[int, int]:
    """Documents of one length with the same sum of squares: how many, and their tokens."""
    count = max(1, round(tokens / mean))
    return count, max(1, round(math.sqrt(tokens * mean / count)))


def _sink_gradient(c: OpContext, heads: int, log_sum: SymbolicTensor) -> None:
    c.tape.parameter_gradient(c.tape.kernel("sum", (log_sum,), c.tape.new((heads,), c.dtype)))


def _copied(t: Tape, x: SymbolicTensor) -> SymbolicTensor:
    """Rows in another order, and their gradients back: what calls by length take."""
    out = t.kernel("copy", (x,), t.like(x))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("copy", (grad,), t.like(grad)),)

    t.record((out,), (x,), backward)
    return out


def _repeat_heads(t: Tape, x: SymbolicTensor, groups: int) -> SymbolicTensor:
    shape = x.shape
    repeated = (*shape[:2], shape[2] * groups, shape[3])
    out = t.kernel("copy", (x,), t.new(repeated, x.dtype))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("sum", (grad,), t.new(shape, grad.dtype)),)

    t.record((out,), (x,), backward)
    return out
