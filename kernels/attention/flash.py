"""Attention to one key block with its log-sum-exp, for ring attention.

A softmax over keys in several places is assembled from each place's output and log-sum-exp
(``ring_merge``). The backward pass needs no merging: from the output and log-sum-exp over *all*
keys, a place's kernel yields the whole gradients of its keys and values and its part of the
queries' (Liu, Zaharia and Abbeel, 2023, "Ring Attention", section 3).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...spec.errors import InputError
from ..dispatch import Dispatcher
from .flash_variants import FLASH_BLOCK_BACKWARD, FLASH_LSE, wide


class _FlashWithLse(Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, causal: bool, kernels: Dispatcher
    ) -> tuple[Tensor, Tensor]:
        out, lse = kernels.pick(FLASH_LSE, query)(query, key, value, causal)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.causal, ctx.kernels = causal, kernels
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        run = ctx.kernels.pick(FLASH_BLOCK_BACKWARD, saved[0])
        return (*run(grads[0], *saved, ctx.causal), None, None)


def flash_attention_with_lse(
    kernels: Dispatcher, query: Tensor, key: Tensor, value: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """Attention to one key block, with the log-sum-exp of its scores.

    Differentiable in the output only: the log-sum-exp has no gradient, so a ring uses
    :func:`flash_attention_backward_block` for its backward pass.

    Args:
        kernels: of the run.
        query: (seq, batch, heads, head_dim).
        key: (keys, batch, kv_heads, head_dim), kv_heads dividing heads.
        value: like ``key``.
        causal: query i sees keys 0..i; as many keys as queries then.

    Returns:
        The output, like ``query``, and the natural log-sum-exp of the scaled scores, (batch, heads,
        seq) float32 (float64 for float64); without keys zeros and -inf.

    Raises:
        InputError: the shapes do not fit together.
    """
    check_heads(query, key, value)
    if causal and query.shape[0] != key.shape[0]:
        raise InputError("causal", f"{query.shape[0]} queries, {key.shape[0]} keys", "as many keys")
    q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
    if not (q.numel() and k.numel()):
        blind = torch.full(q.shape[:-1], -math.inf, device=q.device, dtype=wide(q)[0].dtype)
        return torch.zeros_like(query), blind
    out, lse = _FlashWithLse.apply(q, k, v, causal, kernels)  # type: ignore[no-untyped-call]
    return out.permute(2, 0, 1, 3), lse


def flash_attention_backward_block(
    kernels: Dispatcher,
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    merged_out: Tensor,
    merged_lse: Tensor,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of attention to all keys, from one key block.

    Args:
        kernels: of the run.
        grad: of the merged output, like ``query``.
        query: (seq, batch, heads, head_dim).
        key: this block's, (keys, batch, kv_heads, head_dim).
        value: like ``key``.
        merged_out: output over all keys, shaped like ``query``.
        merged_lse: log-sum-exp over all keys, (batch, heads, seq).
        causal: of this block.

    Returns:
        The block's part of the queries' gradient (to be summed over blocks), and the whole
        gradients of its keys and values from these queries; in the operands' types.

    Raises:
        InputError: the shapes do not fit together.
    """
    check_heads(query, key, value)
    if not (query.numel() and key.numel()):
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    grad, merged_out = grad.to(query.dtype), merged_out.to(query.dtype)
    grad, q, k, v, out = (t.permute(1, 2, 0, 3) for t in (grad, query, key, value, merged_out))
    # A query that sees no key at all: exp(score - inf) is 0, as it must be.
    lse = merged_lse.masked_fill(merged_lse == -math.inf, math.inf)
    grads = kernels.pick(FLASH_BLOCK_BACKWARD, q)(grad, q, k, v, out, lse, causal)
    return tuple(g.permute(2, 0, 1, 3) for g in grads)


def check_heads(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse heads (..., heads, head_dim) that do not fit together.

    Raises:
        InputError: the head counts or widths do not fit.
    """
    if key.shape != value.shape:
        raise InputError("value", tuple(value.shape), f"the keys' shape {tuple(key.shape)}")
    if query.shape[-1] != key.shape[-1] or query.shape[-2] % key.shape[-2]:
        allowed = f"head_dim {query.shape[-1]} and kv_heads that divide {query.shape[-2]}"
        raise InputError("key", tuple(key.shape), allowed)


__all__ = ["check_heads", "flash_attention_backward_block", "flash_attention_with_lse"]
