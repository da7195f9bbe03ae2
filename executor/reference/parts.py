"""Projections and latent attention of the reference, in plain loops.

Nothing is shared with the layers that ranks run. Activations are (batch, seq, width); weights come
by local name.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ...spec.model.mixers import LatentAttention

ReferenceWeights = dict[str, Tensor]
SCALE = "adapter_scale"
"""Where a layer's weights keep what adapters are multiplied with."""


def linear(weights: ReferenceWeights, name: str, x: Tensor) -> Tensor:
    """The projection called ``name``, plus its adapter if any."""
    out = F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
    if f"{name}.adapter_a" not in weights:
        return out
    inner = F.linear(x, weights[f"{name}.adapter_a"])
    return out + weights[SCALE] * F.linear(inner, weights[f"{name}.adapter_b"])


def reference_latent_attention(
    spec: LatentAttention, eps: float, weights: ReferenceWeights, x: Tensor
) -> Tensor:
    """Latent attention with whole keys and values; ``eps`` of its norms."""

    def project(name: str, y: Tensor) -> Tensor:
        return linear(weights, name, y)

    def norm(name: str, y: Tensor) -> Tensor:
        wide = y.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (scaled * weights[f"{name}.weight"]).to(y.dtype)

    if spec.query_rank is None:
        query = project("query", x)
    else:
        query = project("query_up", norm("query_norm", project("query_down", x)))
    query = query.unflatten(-1, (spec.heads, spec.key_dim)).transpose(1, 2)  # type: ignore[no-untyped-call]
    down = project("kv_down", x)
    up = project("kv_up", norm("kv_norm", down[..., : spec.kv_rank]))
    up = up.unflatten(-1, (spec.heads, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
    plain, value = up[..., : spec.nope_dim], up[..., spec.nope_dim :]
    turning = _turned(down[..., spec.kv_rank :].unsqueeze(1), spec.rope_theta)
    key = torch.cat((plain, turning.expand(-1, spec.heads, -1, -1)), -1)
    turned = _turned(query[..., spec.nope_dim :], spec.rope_theta)
    query = torch.cat((query[..., : spec.nope_dim], turned), -1)
    scores = query @ key.transpose(-1, -2) * spec.key_dim**-0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
    return project("output", mixed.transpose(1, 2).flatten(2))


def _turned(x: Tensor, theta: float) -> Tensor:
    seq, half = x.shape[-2], x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(seq, dtype=torch.float64), frequency)
    cos, sin = angle.cos().to(x.device, x.dtype), angle.sin().to(x.device, x.dtype)
    real, imaginary = x.chunk(2, dim=-1)
    return torch.cat((real * cos - imaginary * sin, imaginary * cos + real * sin), -1)


__all__ = ["SCALE", "ReferenceWeights", "linear", "reference_latent_attention"]
