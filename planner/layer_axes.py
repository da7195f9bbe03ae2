"""Which axes a layer has at all."""

from __future__ import annotations

from ..spec.feed_forward import Moe
from ..spec.model import BlockLayer, Layer, MultiTokenLayer
from ..spec.strategy import Recompute


def experts_of(layer: Layer) -> Moe | None:
    """The experts of a layer that has some."""
    block = layer.block if isinstance(layer, MultiTokenLayer) else layer
    if isinstance(block, BlockLayer) and isinstance(block.mlp, Moe):
        return block.mlp
    return None


def recomputes_of(layer: Layer) -> tuple[Recompute, ...]:
    """What a layer may recompute."""
    blocks = isinstance(layer, (BlockLayer, MultiTokenLayer))
    return ("none", "selective", "full") if blocks else ("none",)
