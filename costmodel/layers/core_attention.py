"""Core attention as every mixer calls it: scores, softmax, mixed values.

Sequence splits inside attention (rings of key and value shards, within an exchange of heads for
tokens) wrap the kernel here.
"""

from __future__ import annotations

from ...spec.model.mixers import Attention, LatentAttention
from ...spec.strategy import LayerStrategy
from ..ops.attention import attention
from ..ops.context import OpContext
from ..ops.position import score_bias
from ..ops.recompute import recomputed
from ..symbolic.tape import SymbolicTensor
from .ring_attention import ring_attention
from .ulysses import heads_for_tokens, tokens_for_heads

ATTENDED = "attended"
CORE_ATTENTION = "core_attention"
"""Sizes beside those of named results: the output, and with it all that core attention saves."""


def core_attention(
    c: OpContext,
    strategy: LayerStrategy,
    spec: Attention | LatentAttention,
    query: SymbolicTensor,
    key: SymbolicTensor,
    value: SymbolicTensor,
) -> SymbolicTensor:
    """Attention of local query heads over local key and value heads.

    Args:
        c: context of the layer's operations.
        strategy: the layer's decisions; selective ``recompute`` repeats the kernel in the backward.
        spec: the whole mixer, before any split.
        query: (seq, batch, heads, key width).
        key: (keys, batch, kv_heads, key width).
        value: (keys, batch, kv_heads, value width).

    Returns:
        (seq, batch, heads · value width).
    """
    before = c.tape.live_bytes  # queries, keys and values are the caller's until it returns
    repeats = c.stack.attention == "unfused" and query.shape[2] > key.shape[2]
    inputs = [tokens_for_heads(c, query)]
    inputs += [tokens_for_heads(c, x, ordered=repeats) for x in (key, value)]
    del query, key, value
    if isinstance(spec, Attention) and (spec.relative_buckets or spec.shared_bias):
        tokens, heads = inputs[0].shape[0], inputs[0].shape[2]
        inputs.append(score_bias(c, spec, heads, tokens, inputs[1].shape[0]))

    tokens, batch = inputs[0].shape[:2]
    if chunks := _whole_chunks(spec, tokens, inputs[1].shape[0]):
        inputs = [x.view(tokens // chunks, batch * chunks, *x.shape[2:]) for x in inputs]

    def run(*inputs: SymbolicTensor) -> tuple[SymbolicTensor, ...]:
        kernel = attention if c.ring.size == 1 else ring_attention
        return (kernel(c, spec, *inputs),)

    if strategy.recompute == "selective":
        mixed = recomputed(c, run, None, *inputs)
    else:
        mixed = run(*inputs)[0]
    if chunks:
        mixed = mixed.view(tokens, batch, mixed.shape[-1])
    mixed = heads_for_tokens(c, mixed, spec.heads)
    inputs.clear()
    sizes = {ATTENDED: mixed.size_bytes, CORE_ATTENTION: c.tape.live_bytes - before}
    c.tape.result_bytes.update(sizes)
    return mixed


def _whole_chunks(spec: Attention | LatentAttention, queries: int, keys: int) -> int:
    """Windows of an image, calls of their own; 0 for one, or where they do not divide it."""
    chunk = spec.chunk if isinstance(spec, Attention) and spec.mask == "full" else None
    if chunk is None or chunk >= keys or queries != keys or keys % chunk:
        return 0
    return keys // chunk
