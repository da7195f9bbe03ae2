"""Multi-head attention around its core: projections, positions, output.

Runs what ``shardwright.costmodel.layers.attention`` prices, in the same order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from ...kernels.attention.attention import unfused_attention
from ...kernels.attention.rope import Angles, apply_rope
from ...kernels.dense import norm
from ...spec.model.mixers import Attention
from ...spec.parallel.sequence_partition import IndexRanges, count
from .core_attention import Attend

if TYPE_CHECKING:
    from .block import Block


PROJECTIONS = ("query", "key", "value")


def attention_mixer(block: Block, spec: Attention, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Self-attention of a block.

    ``bias`` (seq, seq, local heads) of relative positions is added to the scores.
    """
    return block.row(attended(block, spec, block.column(x, *PROJECTIONS), bias), "output")


def cross_attention(block: Block, spec: Attention, x: Tensor, source: Tensor) -> Tensor:
    """Attention of ``x`` to another tower's output ``source``, of its own length."""
    (query,) = block.column(x, "cross_query")
    key, value = block.column(source, "cross_key", "cross_value")
    mixed = _attend(block, spec, *(_heads(spec, part) for part in (query, key, value)))
    return block.row(mixed, "cross_output")


def angles_of(spec: Attention, seq_len: int, positions: IndexRanges = ()) -> Angles:
    """Rotary angles of these positions, or of 0 to ``seq_len``."""
    rows = count(positions) if positions else seq_len
    return Angles(rows, spec.head_dim, spec.rope_theta, positions)


def attended(
    block: Block, spec: Attention, projected: tuple[Tensor, ...], bias: Tensor | None = None
) -> Tensor:
    """Heads' outputs from the projections of :data:`PROJECTIONS`."""
    query, key, value = projected
    del projected
    query = _query_or_key(block, spec, "query_norm", query)
    key = _query_or_key(block, spec, "key_norm", key)
    if spec.rotary:
        if query.device.type != "cpu" and not spec.qk_norm:  # turned in place, unlike what is kept
            names = block.results.names
            query = query.clone() if "query" in names else query
            key = key.clone() if "key" in names else key
        angles = angles_of(spec, block.seq_len, block.sequence.tokens.positions)
        query, key = apply_rope(block.kernels, query, key, angles)
    return _attend(block, spec, query, key, _heads(spec, value), bias)


def _attend(
    block: Block,
    spec: Attention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """Core attention of heads, (seq, batch, heads, head_dim) each."""
    causal = spec.mask == "causal" and query.shape[0] == key.shape[0]
    attend: Attend = partial(block.attend, causal=causal)
    if bias is not None:
        attend = partial(_biased, bias, causal)
    recompute = block.recompute == "selective"
    return block.core(block.sequence, attend, spec.heads, recompute, query, key, value, causal)


def _biased(bias: Tensor, causal: bool, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return unfused_attention(query, key, value, causal, bias.permute(2, 0, 1))


def _heads(spec: Attention, x: Tensor) -> Tensor:
    out: Tensor = x.unflatten(-1, (-1, spec.head_dim))  # type: ignore[no-untyped-call]
    return out


def _query_or_key(block: Block, spec: Attention, norm_name: str, x: Tensor) -> Tensor:
    """Split into heads; normalize each (Qwen3), or before that all together (OLMo 2)."""
    if not spec.qk_norm:
        return _heads(spec, x)
    weight = block.slot(norm_name).weight
    if not spec.qk_norm_joint:
        x = _heads(spec, x)
    x = norm.rms_norm(block.kernels, x, weight, block.layer.norm_eps)
    return _heads(spec, x) if spec.qk_norm_joint else x


__all__ = ["PROJECTIONS", "angles_of", "attended", "attention_mixer", "cross_attention"]
