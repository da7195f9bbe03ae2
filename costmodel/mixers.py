"""Token mixers as symbolic work: projections, positions, core attention, output."""

from __future__ import annotations

from ..spec.dense import dense_parts
from ..spec.model import BlockLayer
from ..spec.strategy import LayerStrategy
from .core_attention import core_attention
from .ops import OpContext, norm, rope, split_heads
from .ops_linear import column_linear, row_linear
from .tape import Value


def mixer(c: OpContext, layer: BlockLayer, strategy: LayerStrategy, x: Value) -> Value:
    """What a block adds by mixing its tokens, from the block's input; before the residual."""
    spec, tp = dense_parts(layer)[0], strategy.tp
    query, key, value = column_linear(
        c,
        norm(c, x, layer.norm),
        (spec.query_dim // tp, spec.kv_dim // tp, spec.kv_dim // tp),
        spec.qkv_bias,
        c.stack.fusion.qkv,
        names=("query", "key", "value"),
    )
    ordered = spec.rotary or spec.qk_norm
    query = _positioned(c, layer, split_heads(c, query, spec.heads // tp, ordered))
    key = _positioned(c, layer, split_heads(c, key, spec.kv_heads // tp, ordered))
    repeats = c.stack.attention == "unfused" and spec.heads > spec.kv_heads
    value = split_heads(c, value, spec.kv_heads // tp, repeats)
    mixed = core_attention(c, strategy, spec, query, key, value)
    del query, key, value
    return row_linear(c, mixed, layer.hidden, spec.out_bias, name="output")


def _positioned(c: OpContext, layer: BlockLayer, x: Value) -> Value:
    spec = dense_parts(layer)[0]
    if spec.qk_norm:
        x = norm(c, x, "rmsnorm")
    return rope(c, x) if spec.rotary else x
