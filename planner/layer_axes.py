"""Which axes a layer has at all."""

from __future__ import annotations

from typing import get_args

from ..spec.feed_forward import Moe
from ..spec.layer_legality import RECOMPUTED
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
    return get_args(Recompute) if isinstance(layer, RECOMPUTED) else ("none",)
