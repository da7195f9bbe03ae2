"""Feed-forward parts as symbolic work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...spec.model.feed_forward import FeedForward, Mlp, Moe
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext
from ..symbolic.tape import SymbolicTensor
from .mlp import mlp
from .moe import mixture

LowerFeedForward = Callable[[OpContext, Any, int, LayerStrategy, SymbolicTensor], SymbolicTensor]
"""What a block adds to each token on its own, before the residual.

Takes context, part, width of the residual stream, the layer's decisions and the block's input,
normalised where the block says so. It lets go of that input as soon as nothing needs it.
"""


def feed_forward(spec: FeedForward) -> LowerFeedForward:
    """The function that runs a part of this kind.

    It is looked up, not wrapped: a wrapper's frame would hold the input while it runs.
    """
    return FEED_FORWARDS[type(spec)]


FEED_FORWARDS: dict[type[Any], LowerFeedForward] = {Mlp: mlp, Moe: mixture}
