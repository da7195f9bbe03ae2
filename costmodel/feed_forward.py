"""Feed-forward parts as symbolic work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..spec.errors import NotBuiltError
from ..spec.feed_forward import FeedForward, Mlp
from ..spec.strategy import LayerStrategy
from .ops import OpContext, activation
from .ops_linear import column_linear, row_linear
from .tape import Value

LowerFeedForward = Callable[[OpContext, Any, int, LayerStrategy, Value], Value]
"""What a block adds to each token on its own, before the residual.

Takes context, part, width of the residual stream, the layer's decisions and the block's input,
normalised where the block says so. It lets go of that input as soon as nothing needs it.
"""


def feed_forward(spec: FeedForward) -> LowerFeedForward:
    """The function that runs a part of this kind.

    It is looked up, not wrapped: a wrapper's frame would hold the input while it runs.
    """
    if type(spec) not in FEED_FORWARDS:
        kind = getattr(spec, "kind", "mlp")
        raise NotBuiltError(f"a {kind} feed-forward is not lowered yet", "use a dense decoder")
    return FEED_FORWARDS[type(spec)]


def _mlp(c: OpContext, spec: Mlp, hidden: int, strategy: LayerStrategy, x: Value) -> Value:
    local = spec.ffn // strategy.tp
    widths = (local, local) if spec.gated else (local,)
    names = ("gate", "up") if spec.gated else ("up",)
    projected = column_linear(c, x, widths, spec.bias, c.stack.fusion.gate_up, names=names)
    del x
    inner = activation(c, projected, spec.activation, spec.bias)
    del projected
    return row_linear(c, inner, hidden, spec.bias, name="down")


FEED_FORWARDS: dict[type[Any], LowerFeedForward] = {Mlp: _mlp}
