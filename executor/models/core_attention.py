"""Core attention of every mixer; runs what ``costmodel.layers.core_attention`` prices.

Sequence splits inside attention (rings of key and value shards, within an exchange of heads for
tokens) wrap the kernel here; projections, norms and positions stand outside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from .context_parallel.ring_attention import ring_attention
from .context_parallel.ulysses import heads_for_tokens, tokens_for_heads
from .layer import recomputed
from .sequence_split import SequenceSplit

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values (seq, batch, heads, width) to (seq, batch, heads · width)."""


def core_attention(
    split: SequenceSplit,
    attend: Attend,
    heads: int,
    recompute: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = True,
) -> Tensor:
    """Attention of local query heads over local key and value heads.

    Args:
        split: the layer's split of the sequence.
        attend: the kernel on one rank.
        heads: of the whole mixer, before any split.
        recompute: True to rerun the kernel in the backward pass.
        query: (seq, batch, heads, key width).
        key: (seq, batch, kv_heads, key width).
        value: (seq, batch, kv_heads, value width).
        causal: mask later tokens; without a ring ``attend`` decides.

    Returns:
        (seq, batch, heads · value width).
    """
    if split.ring is not None:
        attend = partial(ring_attention, ring=split.ring, causal=causal)
    inputs = [tokens_for_heads(x, split.ulysses_group) for x in (query, key, value)]
    del query, key, value
    attended = recomputed(attend, *inputs) if recompute else attend(*inputs)
    return heads_for_tokens(attended, heads, split.ulysses_group)


__all__ = ["Attend", "core_attention"]
