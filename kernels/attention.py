"""Causal self-attention: the library's flash kernel, or matrix products and a softmax.

Activations keep the sequence outermost, (seq, batch, heads, head_dim), so that sequence
shards are contiguous. Flash attention (Dao et al., 2022) keeps no score matrix; the unfused
form keeps the probabilities, batch · heads · seq² of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F


def flash_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention without a score matrix.

    Args:
        query: (seq, batch, heads, head_dim).
        key: (seq, batch, kv_heads, head_dim), kv_heads dividing heads.
        value: like ``key``.

    Returns:
        (seq, batch, heads · head_dim).
    """
    q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
    grouped = query.shape[2] != key.shape[2]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    return out.permute(2, 0, 1, 3).flatten(2)


def _batched(x: Tensor) -> Tensor:
    """(seq, batch, heads, d) as (batch · heads, seq, d), a view."""
    return x.flatten(1, 2).transpose(0, 1)


class _UnfusedAttention(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        seq, batch, heads, head_dim = query.shape
        scale = 1 / math.sqrt(head_dim)
        scores = torch.bmm(_batched(query), _batched(key).transpose(1, 2)).mul_(scale)
        future = torch.ones(seq, seq, dtype=torch.bool, device=query.device).triu_(1)
        probabilities = torch.softmax(scores.masked_fill_(future, -math.inf), dim=-1)
        del scores
        ctx.save_for_backward(query, key, value, probabilities)
        ctx.scale = scale
        out = torch.empty(seq, batch * heads, head_dim, dtype=query.dtype, device=query.device)
        out.copy_(torch.bmm(probabilities, _batched(value)).transpose(0, 1))
        return out.view(seq, batch, heads * head_dim)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value, probabilities = ctx.saved_tensors
        grad = _batched(grads[0].view(query.shape))
        grad_value = torch.bmm(probabilities.transpose(1, 2), grad)
        grad_scores = torch.bmm(grad, _batched(value).transpose(1, 2))
        grad_scores = torch._softmax_backward_data(grad_scores, probabilities, -1, query.dtype)
        grad_scores.mul_(ctx.scale)
        grad_query = torch.bmm(grad_scores, _batched(key))
        grad_key = torch.bmm(grad_scores.transpose(1, 2), _batched(query))
        return tuple(  # type: ignore[return-value]
            g.transpose(0, 1).reshape(query.shape) for g in (grad_query, grad_key, grad_value)
        )


def unfused_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention as two batched products around a masked softmax; shapes as flash."""
    groups = query.shape[2] // key.shape[2]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, dim=2) for t in (key, value))
    out: Tensor = _UnfusedAttention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return out


def attention_reference(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The definition in float64; shapes as flash."""
    groups = query.shape[2] // key.shape[2]
    q, k, v = (t.double() for t in (query, key, value))
    k, v = (t.repeat_interleave(groups, dim=2) for t in (k, v))
    scores = torch.einsum("sbhd,tbhd->bhst", q, k) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    probabilities = scores.masked_fill(future, -math.inf).softmax(-1)
    return torch.einsum("bhst,tbhd->sbhd", probabilities, v).flatten(2)
