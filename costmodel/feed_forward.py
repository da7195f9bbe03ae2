"""Feed-forward parts as symbolic work."""

from __future__ import annotations

from ..spec.dense import dense_parts
from ..spec.model import BlockLayer
from ..spec.strategy import LayerStrategy
from .ops import OpContext, activation, norm
from .ops_linear import column_linear, row_linear
from .tape import Value


def feed_forward(c: OpContext, layer: BlockLayer, strategy: LayerStrategy, x: Value) -> Value:
    """What a block adds to each token on its own, from its input; before the residual."""
    mlp = dense_parts(layer)[1]
    local = mlp.ffn // strategy.tp
    widths = (local, local) if mlp.gated else (local,)
    names = ("gate", "up") if mlp.gated else ("up",)
    fused = c.stack.fusion.gate_up
    projected = column_linear(c, norm(c, x, layer.norm), widths, mlp.bias, fused, names=names)
    hidden = activation(c, projected, mlp.activation, mlp.bias)
    del projected
    return row_linear(c, hidden, layer.hidden, mlp.bias, name="down")
