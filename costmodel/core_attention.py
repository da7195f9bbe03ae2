"""Core attention as every mixer calls it: scores, softmax and the mixed values.

What splits the sequence inside attention (rings of key and value shards, exchanges of heads
for tokens) wraps the kernel here; projections, norms and positions stand outside.
"""

from __future__ import annotations

from ..spec.mixers import Attention, LatentAttention
from ..spec.strategy import LayerStrategy
from .ops import OpContext
from .ops_attention import attention
from .ops_position import score_bias
from .recompute import recomputed
from .tape import Value


def core_attention(
    c: OpContext,
    strategy: LayerStrategy,
    spec: Attention | LatentAttention,
    query: Value,
    key: Value,
    value: Value,
) -> Value:
    """Attention of local query heads over local key and value heads.

    Args:
        c: context of the layer's operations.
        strategy: the layer's decisions; ``recompute`` selective runs the kernel again
            going backward.
        spec: the whole mixer, before any split.
        query: (seq, batch, heads, width of a key).
        key: (keys, batch, kv_heads, width of a key).
        value: (keys, batch, kv_heads, width of a value).

    Returns:
        (seq, batch, heads · width of a value).
    """

    def run(*inputs: Value) -> tuple[Value, ...]:
        return (attention(c, spec, *inputs),)

    inputs = [query, key, value]
    if isinstance(spec, Attention) and (spec.relative_buckets or spec.shared_bias):
        inputs.append(score_bias(c, spec, query.shape[2], query.shape[0], key.shape[0]))
    if strategy.recompute == "selective":
        return recomputed(c, run, None, *inputs)
    return run(*inputs)[0]
