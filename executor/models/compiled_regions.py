"""A block's regions in plain torch operations, for a fusing compiler.

The same arithmetic as ``block`` without dispatch, autograd functions or collectives, which a
compiler cannot see through. torch differentiates while tracing. Activations are (seq, batch,
width).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

RegionWeights = dict[str, Tensor]
"""Weights and biases of a layer by name, such as ``query.weight``."""
ACTIVATIONS = ("swiglu", "gelu", "gelu_tanh")
"""Activations of :func:`apply_activation`."""
Angles = tuple[Tensor, Tensor] | None
"""Cosines and sines of positions, (seq, head_dim / 2); None without rotary positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockForm:
    """Properties of a block fixed at compilation."""

    norm: str
    eps: float
    head_dim: int
    activation: str
    flash: bool


def normalized(form: BlockForm, x: Tensor, weights: RegionWeights, name: str) -> Tensor:
    """The norm called ``name``, computed in float32."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    if form.norm == "layernorm" and bias is not None:
        return F.layer_norm(x, (x.shape[-1],), weight, bias, form.eps)
    return _rms_norm(x, weight, form.eps)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    inverse_rms = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * inverse_rms * weight).to(x.dtype)


def add_and_norm(
    form: BlockForm, x: Tensor, added: Tensor, weights: RegionWeights, name: str
) -> tuple[Tensor, Tensor]:
    """``x + added`` and its norm."""
    x = x + added
    return x, normalized(form, x, weights, name)


def positioned(
    form: BlockForm,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: RegionWeights,
    angles: Angles,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values: heads split, normalized, rotated.

    Each is (seq, batch, heads, head_dim).
    """
    width = form.head_dim
    query, key, value = (x.view(*x.shape[:-1], -1, width) for x in (query, key, value))
    if "query_norm.weight" in weights:
        query = _rms_norm(query, weights["query_norm.weight"], form.eps)
        key = _rms_norm(key, weights["key_norm.weight"], form.eps)
    if angles is not None:
        query, key = _turned(query, *angles), _turned(key, *angles)
    return query, key, value


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    real, imaginary = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, None, :], sin[:, None, None, :]
    return torch.cat((real * cos - imaginary * sin, imaginary * cos + real * sin), dim=-1)


def attend(
    form: BlockForm,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: RegionWeights,
    angles: Angles,
) -> Tensor:
    """Core attention of projected inputs, (seq, batch, heads · head_dim)."""
    heads = positioned(form, query, key, value, weights, angles)
    q, k, v = (x.permute(1, 2, 0, 3) for x in heads)
    if not form.flash:
        return _unfused(q, k, v).permute(2, 0, 1, 3).flatten(2)
    if q.device.type == "cpu":
        out = torch._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)[0]
        return out.permute(2, 0, 1, 3).flatten(2)
    grouped = q.shape[1] != k.shape[1]
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]):  # keep no scores
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    return out.permute(2, 0, 1, 3).flatten(2)


def _unfused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    seq = query.shape[2]
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    future = torch.ones(seq, seq, dtype=torch.bool, device=query.device).triu(1)
    out: Tensor = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
    return out


def apply_activation(form: BlockForm, *projected: Tensor) -> Tensor:
    """Activation of one projection, or of a gate and its gated projection."""
    if form.activation == "swiglu":
        gate, up = projected
        return F.silu(gate) * up
    return F.gelu(projected[0], approximate="tanh" if form.activation == "gelu_tanh" else "none")


def whole(form: BlockForm, x: Tensor, weights: RegionWeights, angles: Angles) -> Tensor:
    """The whole block on one rank."""
    normal = normalized(form, x, weights, "attention_norm")
    query, key, value = (_linear(normal, weights, name) for name in ("query", "key", "value"))
    attended = attend(form, query, key, value, weights, angles)
    x, normal = add_and_norm(form, x, _linear(attended, weights, "output"), weights, "mlp_norm")
    names = ("gate", "up") if form.activation == "swiglu" else ("up",)
    out = apply_activation(form, *(_linear(normal, weights, name) for name in names))
    return x + _linear(out, weights, "down")


def _linear(x: Tensor, weights: RegionWeights, name: str) -> Tensor:
    return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


__all__ = [
    "ACTIVATIONS",
    "Angles",
    "BlockForm",
    "RegionWeights",
    "add_and_norm",
    "apply_activation",
    "attend",
    "normalized",
    "positioned",
    "whole",
]
