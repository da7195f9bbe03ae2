"""Residual blocks as symbolic work: where norms stand and how parts are added."""

from __future__ import annotations

from ..spec.feed_forward import FeedForward, Mlp
from ..spec.layers import BlockLayer
from ..spec.mixers import Attention, Mixer
from ..spec.strategy import LayerStrategy
from .feed_forward import feed_forward
from .mixers import mixer
from .ops import OpContext, norm, residual_add
from .recompute import recomputed
from .tape import Value


def block(c: OpContext, layer: BlockLayer, strategy: LayerStrategy, x: Value) -> Value:
    """A token mixer, then a feed-forward part, each added to what goes around it."""
    attention, mlp = layer.attention, layer.mlp
    if attention is None or mlp is None:
        raise RuntimeError("legality lets no such block through")

    def body(x: Value) -> tuple[Value, ...]:
        mixed = mixer(attention)(c, attention, layer.hidden, strategy, norm(c, x, layer.norm))
        x = residual_add(c, x, mixed, mixer_bias(attention))
        del mixed
        return x, feed_forward(mlp)(c, mlp, layer.hidden, strategy, norm(c, x, layer.norm))

    def finish(x: Value, branch: Value) -> Value:
        return residual_add(c, x, branch, feed_forward_bias(mlp))

    if strategy.recompute == "full":
        return recomputed(c, body, finish, x)
    return finish(*body(x))


def mixer_bias(spec: Mixer) -> bool:
    """Whether the mixer's output projection leaves its bias to the residual sum."""
    return isinstance(spec, Attention) and spec.out_bias


def feed_forward_bias(spec: FeedForward) -> bool:
    """Whether the part's last projection leaves its bias to the residual sum."""
    return isinstance(spec, Mlp) and spec.bias
