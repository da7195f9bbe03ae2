"""Core attention: the library's flash kernel, or unfused matrix products.

Queries see the keys up to their own (causal), or all keys, whose number may differ from theirs
(cross-attention).

Activations are (seq, batch, heads, head_dim), sequence outermost, so that sequence shards are
contiguous. Flash attention (Dao et al., 2022) keeps no score matrix; the unfused form keeps the
probabilities, batch · heads · seq² of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...spec.errors import RunError
from .flash_narrow import narrow_flash_on_cores

KEEP_NO_SCORES = (SDPBackend.FLASH_ATTENTION.value, SDPBackend.CUDNN_ATTENTION.value)


def flash_attention(query: Tensor, key: Tensor, value: Tensor, causal: bool = True) -> Tensor:
    """Attention without a score matrix; flash kernel only.

    Args:
        query: (seq, batch, heads, head_dim).
        key: (keys, batch, kv_heads, head_dim), kv_heads dividing heads.
        value: like ``key``; narrower heads allowed where causal.
        causal: query i sees keys 0..i, with as many keys as queries; else all keys.

    Returns:
        (seq, batch, heads · value width).

    Raises:
        RunError: the library has no flash kernel for these tensors on this device.
    """
    q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
    run = _flash_on_cpu if query.device.type == "cpu" else _flash_on_device
    out = run(q, k, v, causal)
    return out.permute(2, 0, 1, 3).flatten(2)


def _flash_on_cpu(query: Tensor, key: Tensor, value: Tensor, causal: bool = True) -> Tensor:
    try:
        if causal and value.shape[-1] < query.shape[-1]:
            return narrow_flash_on_cores(query, key, value)
        return torch._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal)[0]
    except RuntimeError as error:
        raise _no_flash(query, error) from None


def _flash_on_device(query: Tensor, key: Tensor, value: Tensor, causal: bool = True) -> Tensor:
    """Call the library's attention with score-materializing kernels barred.

    On Hopper and Blackwell the library picks cuDNN's kernels, which keep no scores either. Barring
    costs the host some 10 µs, so it is skipped where the choice is flash or cuDNN anyway.
    """
    grouped = query.shape[1] != key.shape[1]
    options: dict[str, Any] = {"is_causal": causal, "enable_gqa": grouped}
    choice = torch._fused_sdp_choice(query, key, value, None, 0.0, **options)
    if choice in KEEP_NO_SCORES:
        return F.scaled_dot_product_attention(query, key, value, **options)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(query, key, value, **options)
    except RuntimeError as error:
        raise _no_flash(query, error) from None


def _no_flash(query: Tensor, error: RuntimeError) -> Exception:
    why = " ".join(str(error).split())[:160]
    if "memory" in why:
        return error
    kind = f"{str(query.dtype).removeprefix('torch.')} with head_dim {query.shape[-1]}"
    return RunError(f"no flash attention for {kind} on {query.device}; use unfused ({why})")


def _batched(x: Tensor) -> Tensor:
    """View (seq, batch, heads, d) as (batch · heads, seq, d)."""
    return x.flatten(1, 2).transpose(0, 1)


class _UnfusedAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool
    ) -> Tensor:
        seq, batch, heads, head_dim = query.shape
        scale = 1 / math.sqrt(head_dim)
        scores = torch.bmm(_batched(query), _batched(key).transpose(1, 2)).mul_(scale)
        if bias is not None:
            scores.view(batch, heads, *scores.shape[1:]).add_(bias)
        if causal:
            future = torch.ones(seq, seq, dtype=torch.bool, device=query.device).triu_(1)
            scores.masked_fill_(future, -math.inf)
        probabilities = torch.softmax(scores, dim=-1)
        del scores
        ctx.save_for_backward(query, key, value, probabilities)
        ctx.scale, ctx.has_bias = scale, bias is not None
        width = value.shape[-1]
        out = torch.empty(seq, batch * heads, width, dtype=query.dtype, device=query.device)
        out.copy_(torch.bmm(probabilities, _batched(value)).transpose(0, 1))
        return out.view(seq, batch, heads * width)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, probabilities = ctx.saved_tensors
        batch, heads = query.shape[1:3]
        grad = _batched(grads[0].view(*query.shape[:3], value.shape[-1]))
        grad_value = torch.bmm(probabilities.transpose(1, 2), grad)
        grad_scores = torch.bmm(grad, _batched(value).transpose(1, 2))
        grad_scores = torch._softmax_backward_data(grad_scores, probabilities, -1, query.dtype)
        grad_bias = None
        if ctx.has_bias:
            grad_bias = grad_scores.view(batch, heads, *grad_scores.shape[1:]).sum(0)
        grad_scores.mul_(ctx.scale)
        grad_query = torch.bmm(grad_scores, _batched(key))
        grad_key = torch.bmm(grad_scores.transpose(1, 2), _batched(query))
        pairs = ((grad_query, query), (grad_key, key), (grad_value, value))
        gradients = (g.transpose(0, 1).reshape(x.shape) for g, x in pairs)
        return (*gradients, grad_bias, None)


def unfused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = True,
    bias: Tensor | None = None,
) -> Tensor:
    """Attention as two batched products around an optionally causal softmax.

    Operands as in :func:`flash_attention`, with values of any width. ``bias`` (heads, seq, keys) is
    added to the scaled scores and gets a gradient.
    """
    groups = query.shape[2] // key.shape[2]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, dim=2) for t in (key, value))
    out: Tensor = _UnfusedAttention.apply(  # type: ignore[no-untyped-call]
        query, key, value, bias, causal
    )
    return out


def attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = True,
    bias: Tensor | None = None,
) -> Tensor:
    """Float64 reference; shapes as :func:`unfused_attention`."""
    groups = query.shape[2] // key.shape[2]
    q, k, v = (t.double() for t in (query, key, value))
    k, v = (t.repeat_interleave(groups, dim=2) for t in (k, v))
    scores = torch.einsum("sbhd,tbhd->bhst", q, k) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias.double()
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return torch.einsum("bhst,tbhd->sbhd", scores.softmax(-1), v).flatten(2)
