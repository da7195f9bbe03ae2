"""Experts and latent attention of the reference, in plain loops.

Nothing is shared with the layers that ranks run. Activations are (batch, seq, width); weights come
by local name.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ...spec.model.feed_forward import Activation, Moe
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


def reference_moe(moe: Moe, weights: ReferenceWeights, x: Tensor) -> Tensor:
    """Every expert run on its tokens, one after another."""
    tokens = x.flatten(0, 1)
    logits = F.linear(tokens, weights["router.weight"], weights.get("router.bias")).float()
    scores = logits.softmax(-1) if moe.score == "softmax" else logits.sigmoid()
    chosen = _allowed(moe, scores).topk(moe.topk, dim=-1).indices
    picked = scores.gather(1, chosen)
    shares = torch.zeros_like(scores).scatter(1, chosen, picked / picked.sum(-1, keepdim=True))
    total = torch.zeros(tokens.shape, dtype=torch.float32, device=x.device)
    for expert in range(moe.experts):
        mine = (chosen == expert).any(-1).nonzero().squeeze(1)
        names = ("gate", "up") if moe.gated else ("up",)
        inner = [F.linear(tokens[mine], weights[f"experts_{n}.weight"][expert]) for n in names]
        made = F.linear(
            activation_function(moe.activation, *inner), weights["experts_down.weight"][expert]
        )
        total = total.index_add(0, mine, made * shares[mine, expert].unsqueeze(1))
    out = total.to(x.dtype).view(x.shape)
    return out + _shared(moe, weights, x) if moe.shared_ffn else out


def _allowed(moe: Moe, scores: Tensor) -> Tensor:
    if moe.groups_per_token >= moe.groups:
        return scores
    grouped = scores.view(scores.shape[0], moe.groups, -1)
    ranked = grouped.sort(dim=-1, descending=True).values
    worth = ranked[..., :2].sum(-1) if moe.score == "sigmoid" else ranked[..., 0]
    order = worth.argsort(dim=-1, descending=True)
    kept = torch.zeros_like(worth, dtype=torch.bool)
    kept[torch.arange(len(worth)).unsqueeze(1), order[:, : moe.groups_per_token]] = True
    return grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(1)


def _shared(moe: Moe, weights: ReferenceWeights, x: Tensor) -> Tensor:
    names = ("gate", "up") if moe.gated else ("up",)
    inner = [linear(weights, f"shared_{name}", x) for name in names]
    out = linear(weights, "shared_down", activation_function(moe.activation, *inner))
    if not moe.shared_gate:
        return out
    return out * F.linear(x, weights["shared_expert_gate.weight"]).sigmoid()


def activation_function(kind: Activation, *projected: Tensor) -> Tensor:
    """Activation of one projection, or of a gate and its gated projection."""
    if len(projected) == 2:
        return F.silu(projected[0]) * projected[1]
    return F.gelu(projected[0], approximate="tanh" if kind == "gelu_tanh" else "none")


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


__all__ = ["SCALE", "ReferenceWeights", "linear", "reference_latent_attention", "reference_moe"]
