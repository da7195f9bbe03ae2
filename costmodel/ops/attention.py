"""Core attention as symbolic work, and its flash form.

Query is (seq, batch, heads, width of a key), key and value the same with their own tokens,
heads and widths. FLOPs count every score that a query may reach as if its row were full: the
whole matrix of a causal mask, ``queries · min(window, keys)`` of a sliding window. A kernel that
skips the masked part does less, which is the pricing's business (``spec.kernels.done_share``),
not the count's. Flash kernels take keys and values of different widths (latent attention) as
they are; assumed: none pads values to the width of keys.
"""

from __future__ import annotations

from dataclasses import replace

from ...spec.model.mixers import Attention, LatentAttention
from ...spec.report.work_items import flash_name
from ..symbolic.tape import SymbolicTensor, Tape
from .attention_mask import Scores, scores_of
from .context import OpContext
from .unfused_attention import unfused_attention


def attention(
    c: OpContext,
    spec: Attention | LatentAttention,
    query: SymbolicTensor,
    key: SymbolicTensor,
    value: SymbolicTensor,
    bias: SymbolicTensor | None = None,
) -> SymbolicTensor:
    """Core attention by the stack's implementation; (seq, batch, heads · width of a value).

    Args:
        c: context of the layer's operations.
        spec: the mixer, for its mask and what changes its scores.
        query: local query heads.
        key: local key heads.
        value: local value heads.
        bias: added to the scores, (heads, seq, keys).
    """
    scores = scores_of(spec, query.shape[0], key.shape[0])
    if c.drops and isinstance(spec, Attention) and spec.out_bias:
        scores = replace(scores, drops=True)
    if c.stack.attention == "flash":
        return flash_attention(c, scores, query, key, value, bias)
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
    """One kernel that keeps its inputs, its output and a logarithm a row (Dao, 2023).

    The gradient of ``bias`` is written by the backward kernel; assumed: once a sample, and
    summed over the batch.
    """
    t = c.tape
    seq, batch, heads, _ = query.shape
    given = (query, key, value) if bias is None else (query, key, value, bias)
    out, log_sum = flash_forward(c, scores, given)
    joined = out.view(seq, batch, heads * value.shape[-1])

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        each = None if bias is None else t.new((batch, *bias.shape), bias.dtype)
        gradients = flash_backward(c, scores, given, (out, log_sum), grad, each)
        if scores.sinks:
            _sink_gradient(c, heads, log_sum)
        if bias is None or each is None:
            return gradients
        return (*gradients, t.kernel("sum", (each,), t.like(bias)))

    t.record((joined,), given, backward)
    return joined


def flash_forward(
    c: OpContext, scores: Scores, given: tuple[SymbolicTensor, ...]
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """The kernel on query, key and value (and bias): output by heads, and a logarithm a row."""
    t = c.tape
    query, key, value, *_ = given
    seq, batch, heads, dim = query.shape
    op, shape = _flash_shape(scores, query, key, value)
    out = t.new((seq, batch, heads, value.shape[-1]), query.dtype)
    log_sum = t.new((batch, heads, seq), "fp32")
    flops = 2 * batch * heads * seq * scores.visible_keys * (dim + value.shape[-1])
    traffic = sum(x.size_bytes for x in (*given, out, log_sum))
    t.shaped_kernel(op, shape, c.dtype, flops, traffic)
    return out, log_sum


def flash_backward(
    c: OpContext,
    scores: Scores,
    given: tuple[SymbolicTensor, ...],
    results: tuple[SymbolicTensor, SymbolicTensor],
    grad: SymbolicTensor,
    bias_gradient: SymbolicTensor | None = None,
) -> tuple[SymbolicTensor, ...]:
    """The kernel that computes the scores again, then four products: gradients of q, k and v."""
    t = c.tape
    query, key, value, *_ = given
    seq, batch, heads, dim = query.shape
    op, shape = _flash_shape(scores, query, key, value)
    gradients = tuple(t.like(x) for x in (query, key, value))
    written = gradients if bias_gradient is None else (*gradients, bias_gradient)
    traffic = sum(x.size_bytes for x in (grad, *given, *results, *written))
    flops = 2 * batch * heads * seq * scores.visible_keys * (3 * dim + 2 * value.shape[-1])
    t.shaped_kernel(f"{op}_backward", shape, c.dtype, flops, traffic)
    return gradients


def _flash_shape(
    scores: Scores, query: SymbolicTensor, key: SymbolicTensor, value: SymbolicTensor
) -> tuple[str, tuple[int, ...]]:
    """The kernel's name and sizes; plain causal ones are known by five."""
    seq, batch, heads, dim = query.shape
    square = key.shape[0] == seq and value.shape[-1] == dim
    plain = scores.mask == "causal" and square and scores.visible_keys == seq
    op = flash_name(scores.mask, plain)
    if plain:
        return op, (batch, heads, key.shape[2], seq, dim)
    sizes = (batch, heads, key.shape[2], seq, key.shape[0], dim, value.shape[-1])
    return op, sizes if scores.mask == "full" else (*sizes, scores.visible_keys)


def _sink_gradient(c: OpContext, heads: int, log_sum: SymbolicTensor) -> None:
    c.tape.parameter_gradient(c.tape.kernel("sum", (log_sum,), c.tape.new((heads,), c.dtype)))


def _repeat_heads(t: Tape, x: SymbolicTensor, groups: int) -> SymbolicTensor:
    """Key or value heads repeated for their query heads, a copy."""
    shape = x.shape
    repeated = (*shape[:2], shape[2] * groups, shape[3])
    out = t.kernel("copy", (x,), t.new(repeated, x.dtype))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("sum", (grad,), t.new(shape, grad.dtype)),)

    t.record((out,), (x,), backward)
    return out
