"""Token mixers as symbolic work: one function a kind, told apart by the spec's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..spec.errors import NotBuiltError
from ..spec.mixers import Attention, Mixer
from ..spec.strategy import LayerStrategy
from .core_attention import core_attention
from .ops import OpContext, norm, rope, split_heads
from .ops_linear import column_linear, row_linear
from .tape import Value

LowerMixer = Callable[[OpContext, Any, int, LayerStrategy, Value], Value]
"""What a block adds by mixing its tokens, before the residual.

Takes context, mixer, width of the residual stream, the layer's decisions and the block's input,
normalised where the block says so. It lets go of that input as soon as nothing needs it.
"""


def mixer(spec: Mixer) -> LowerMixer:
    """The function that runs a mixer of this kind.

    It is looked up, not wrapped: a wrapper's frame would hold the input while it runs.
    """
    if type(spec) not in MIXERS:
        kind = getattr(spec, "kind", "token")
        raise NotBuiltError(f"a {kind} mixer is not lowered yet", "use a dense decoder")
    return MIXERS[type(spec)]


def _attention(
    c: OpContext, spec: Attention, hidden: int, strategy: LayerStrategy, x: Value
) -> Value:
    tp = strategy.tp
    query, key, value = column_linear(
        c,
        x,
        (spec.query_dim // tp, spec.kv_dim // tp, spec.kv_dim // tp),
        spec.qkv_bias,
        c.stack.fusion.qkv,
        names=("query", "key", "value"),
    )
    del x
    ordered = spec.rotary or spec.qk_norm
    query = _positioned(c, spec, split_heads(c, query, spec.heads // tp, ordered))
    key = _positioned(c, spec, split_heads(c, key, spec.kv_heads // tp, ordered))
    repeats = c.stack.attention == "unfused" and spec.heads > spec.kv_heads
    value = split_heads(c, value, spec.kv_heads // tp, repeats)
    mixed = core_attention(c, strategy, spec, query, key, value)
    del query, key, value
    return row_linear(c, mixed, hidden, spec.out_bias, name="output")


def _positioned(c: OpContext, spec: Attention, x: Value) -> Value:
    if spec.qk_norm:
        x = norm(c, x, "rmsnorm")
    return rope(c, x) if spec.rotary else x


MIXERS: dict[type[Any], LowerMixer] = {Attention: _attention}
