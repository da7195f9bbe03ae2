"""Multi-head attention around its core: projections, positions, output.

Runs what :mod:`shardwright.costmodel.attention_mixer` prices, in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ...kernels import norm
from ...kernels.rope import Angles, apply_rope
from ...spec.mixers import Attention
from ...spec.token_parts import Spans, count
from .core_attention import core_attention

if TYPE_CHECKING:
    from .block import Block


def attention_mixer(block: Block, spec: Attention, x: Tensor) -> Tensor:
    """Causal self-attention of a block; what every :data:`.mixers.RunMixer` takes and gives."""
    mixed = _core(block, spec, *block.column(x, "query", "key", "value"))
    return block.row(mixed, "output")


def angles_of(spec: Attention, seq_len: int, positions: Spans = ()) -> Angles:
    """The angles by which heads turn: of these positions, or of 0 to ``seq_len``."""
    rows = count(positions) if positions else seq_len
    return Angles(rows, spec.head_dim, spec.rope_theta, positions)


def _core(block: Block, spec: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query = _query_or_key(block, spec, "query_norm", query)
    key = _query_or_key(block, spec, "key_norm", key)
    split, again = block.sequence, block.recompute == "selective"
    if spec.rotary:
        angles = angles_of(spec, block.seq_len, split.tokens.positions)
        query, key = apply_rope(block.kernels, query, key, angles)
    value = _heads(spec, value)
    return core_attention(split, block.attend, spec.heads, again, query, key, value)


def _heads(spec: Attention, x: Tensor) -> Tensor:
    out: Tensor = x.unflatten(-1, (-1, spec.head_dim))  # type: ignore[no-untyped-call]
    return out


def _query_or_key(block: Block, spec: Attention, norm_name: str, x: Tensor) -> Tensor:
    """Split into heads, which Qwen3 normalises."""
    x = _heads(spec, x)
    if not spec.qk_norm:
        return x
    weight = block.slot(norm_name).weight
    return norm.rms_norm(block.kernels, x, weight, block.layer.norm_eps)


__all__ = ["angles_of", "attention_mixer"]
