"""Multi-head attention around its core: projections, positions, output.

Runs what :mod:`shardwright.costmodel.attention_mixer` prices, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from ...kernels import norm
from ...kernels.attention import unfused_attention
from ...kernels.rope import Angles, apply_rope
from ...spec.mixers import Attention
from .layer import again
from .parallel import column_linear, row_linear

if TYPE_CHECKING:
    from .block import Block


def attention_mixer(block: Block, spec: Attention, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Self-attention of a block; takes and gives what every part of a block does.

    ``bias`` (local heads, seq, seq) is added to the scores where the block has relative positions.
    """
    names = ("query", "key", "value")
    weights, biases = block.weights(*names), block.biases(*names)
    mixed = _core(block, spec, column_linear(x, weights, biases, block.tp), bias)
    output = block.slot("output")
    return row_linear(mixed, output.weight, output.bias, block.tp)


def cross_attention(block: Block, spec: Attention, x: Tensor, source: Tensor) -> Tensor:
    """Attention of ``x`` to another tower's output ``source``, which has its own length."""
    tp, names = block.tp, ("cross_key", "cross_value")
    (query,) = column_linear(x, block.weights("cross_query"), block.biases("cross_query"), tp)
    key, value = column_linear(source, block.weights(*names), block.biases(*names), tp)
    mixed = _attend(block, spec, *(_heads(spec, part) for part in (query, key, value)))
    output = block.slot("cross_output")
    return row_linear(mixed, output.weight, output.bias, tp)


def angles_of(spec: Attention, seq_len: int) -> Angles:
    """The angles by which heads turn, position by position."""
    return Angles(seq_len, spec.head_dim, spec.rope_theta)


def _core(
    block: Block, spec: Attention, projected: tuple[Tensor, ...], bias: Tensor | None
) -> Tensor:
    query, key, value = projected
    del projected
    query = _query_or_key(block, spec, "query_norm", query)
    key = _query_or_key(block, spec, "key_norm", key)
    if spec.rotary:
        query, key = apply_rope(block.kernels, query, key, angles_of(spec, block.seq_len))
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
    given: tuple[Tensor, ...] = (query, key, value)
    run: Callable[..., Tensor] = partial(block.attend, causal=causal)
    if bias is not None:
        run, given = partial(_biased, causal), (*given, bias)
    out: Tensor = again(run, *given) if block.recompute == "selective" else run(*given)
    return out


def _biased(causal: bool, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    return unfused_attention(query, key, value, causal, bias)


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


__all__ = ["angles_of", "attention_mixer", "cross_attention"]
