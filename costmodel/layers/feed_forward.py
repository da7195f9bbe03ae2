"""Feed-forward layers: one function per kind, by the spec's type."""

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
"""A block's work on each token alone, before the residual sum.

Takes context, spec, width of the residual stream, the layer's decisions and the block's input,
normalized where the block says so. It releases that input as soon as nothing needs it.
"""


def feed_forward(spec: FeedForward) -> LowerFeedForward:
    """The function of this kind of feed-forward layer.

    Looked up, not wrapped: a wrapper's frame would keep the input alive while it runs.
    """
    return FEED_FORWARDS[type(spec)]


FEED_FORWARDS: dict[type[Any], LowerFeedForward] = {Mlp: mlp, Moe: mixture}
