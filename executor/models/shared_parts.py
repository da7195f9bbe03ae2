"""Parallel attention and MLP with one gather and one scatter each way.

Runs what ``shardwright.costmodel.layers.shared_parts`` prices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ...spec.model.dense_blocks import shares_collectives
from ...spec.model.feed_forward import Mlp
from ...spec.model.mixers import Attention
from .attention import PROJECTIONS, attended
from .mlp import activated, projections

if TYPE_CHECKING:
    from .block import Block


def shares(block: Block) -> bool:
    """True if a block's parts share collectives: one norm, plain trained products."""
    split = block.tp.size > 1 and shares_collectives(block.layer)
    return split and block.slot("query").weight.requires_grad


def shared_parts(block: Block, x: Tensor) -> Tensor:
    """Sum of attention and MLP of one input, gathered once and scattered once.

    Raises:
        RuntimeError: a block whose parts share nothing.
    """
    mix, feed = block.attention, block.mlp
    if not isinstance(mix, Attention) or not isinstance(feed, Mlp):
        raise RuntimeError("shares_collectives let another kind through")
    projected = block.column(x, *PROJECTIONS, *projections(feed))
    heads = len(PROJECTIONS)
    parts = [projected[:heads], projected[heads:]]
    del projected  # each part holds its own alone
    mixed = attended(block, mix, parts.pop(0))
    inner = activated(block, feed, parts.pop())
    return block.summed_rows((mixed, "output"), (inner, "down"))


__all__ = ["shared_parts", "shares"]
