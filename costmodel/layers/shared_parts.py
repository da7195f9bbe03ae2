"""Parallel attention and MLP with one gather and one scatter each way.

Where both read one normalized input and are added in one sum (Wang and Komatsuzaki, GPT-J, 2021;
Chowdhery et al., PaLM, arXiv:2204.02311, section 2), their column-split products are of one
gathered input and their row-split ones add into one partial sum. So a block has one gather and one
scatter forward, and one of each and one gather of the input again back, in place of two.
"""

from __future__ import annotations

from collections.abc import Callable

from ...spec.model.dense_blocks import shares_collectives
from ...spec.model.feed_forward import Mlp
from ...spec.model.layers import BlockLayer
from ...spec.model.mixers import Attention
from ...spec.strategy import LayerStrategy
from ..ops.activation import activation
from ..ops.context import OpContext, norm
from ..ops.linear import column_projections, row_projections
from ..ops.lora import adapted
from ..ops.residual import residual_add
from ..symbolic.tape import SymbolicTensor
from .attention import attended, attention_projections
from .mlp import mlp_projections

NAMES = ("output", "down")


def shares(c: OpContext, layer: BlockLayer) -> bool:
    """True if a layer's parts share collectives: plain products, trained, nothing dropped."""
    plain = c.precision is None and c.base is None and c.training.weights and not c.drops
    return c.tp > 1 and plain and shares_collectives(layer) and not any(adapted(c, NAMES))


def shared_parts(
    c: OpContext, layer: BlockLayer, strategy: LayerStrategy
) -> tuple[Callable[..., tuple[SymbolicTensor, ...]], Callable[..., SymbolicTensor]]:
    """The block's body, and its residual sum.

    Raises:
        RuntimeError: a block whose parts share nothing.
    """
    mix, feed = layer.attention, layer.mlp
    if not isinstance(mix, Attention) or not isinstance(feed, Mlp):
        raise RuntimeError("shares_collectives let another kind through")

    def body(x: SymbolicTensor, source: SymbolicTensor | None = None) -> tuple[SymbolicTensor, ...]:
        first = attention_projections(c, mix, strategy)
        second = mlp_projections(c, feed, strategy)
        outs = column_projections(c, norm(c, x, layer.norm), (first, second))
        heads = len(first.widths)
        parts = [outs[:heads], outs[heads:]]
        del outs
        mixed = attended(c, mix, strategy, parts.pop(0))
        inner = activation(c, parts.pop(), feed.activation, feed.bias)
        biases = mix.out_bias, feed.bias
        return x, row_projections(c, (mixed, inner), layer.hidden, biases, NAMES)

    def finish(x: SymbolicTensor, added: SymbolicTensor) -> SymbolicTensor:
        return residual_add(c, x, added, False)

    return body, finish


__all__ = ["shared_parts", "shares"]
