"""Layers of the reference in torch's own operations.

Inputs and outputs are (batch, seq, hidden). Nothing here is the executor's: where that has its own
kernel or order, this has the definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ...spec.model.feed_forward import FeedForward, Mlp, Moe
from ...spec.model.layers import (
    EMBEDDING_NORM_EPS,
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    NormLayer,
    PatchLayer,
)
from ...spec.model.mixers import Attention, LatentAttention
from .experts import ReferenceRouter, reference_moe
from .parts import SCALE, ReferenceWeights, linear, reference_latent_attention

LAST_RANGE_FROM = 128
"""The distance from which on T5's last bucket reaches."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "swiglu": F.silu,
    "geglu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
"""What is applied to the only projection, or to the gate of two."""


def run_layer(
    layer: Layer,
    weights: ReferenceWeights,
    x: Tensor,
    source: Tensor | None,
    bias: Tensor | None,
    router: ReferenceRouter | None = None,
    seen: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """A layer's output (or final logits), and its tower's shared bias.

    ``x`` is tokens (batch, seq), images (batch, channels, side, side) or activations; ``source``,
    the other tower's output; ``bias``, from an earlier block; ``router``, of its experts;
    ``seen``, 0 within documents and -inf between them, (batch, 1, seq, seq).
    """
    if isinstance(layer, BlockLayer):
        return _block(layer, weights, x, source, bias, router, seen)
    if isinstance(layer, EmbeddingLayer):
        return _embedding(layer, weights, x), None
    if isinstance(layer, PatchLayer):
        return _patches(layer, weights, x), None
    x = x if layer.norm is None else _norm(layer.norm, layer.norm_eps, weights, "norm", x)
    if isinstance(layer, NormLayer):
        return x, None
    if isinstance(layer, ClassifierLayer):
        return linear(weights, "projection", x[:, :1]), None
    if not isinstance(layer, HeadLayer):
        raise TypeError(f"the reference has no {layer.kind} layer")
    if layer.transform:
        x = F.gelu(linear(weights, "transform", x))
        x = _norm("layernorm", layer.norm_eps, weights, "transform_norm", x)
    logits = linear(weights, "projection", x)
    if layer.softcap is not None:
        logits = layer.softcap * torch.tanh(logits / layer.softcap)
    return logits, None


def _embedding(layer: EmbeddingLayer, weights: ReferenceWeights, tokens: Tensor) -> Tensor:
    seq = tokens.shape[1]
    x = F.embedding(tokens, weights["tokens.weight"])
    if "positions.weight" in weights:
        x = x + weights["positions.weight"][:seq]
    if layer.token_types:  # even parts of the sample, one after the other
        parts = [place * layer.token_types // seq for place in range(seq)]
        x = x + weights["token_types.weight"][torch.tensor(parts, device=x.device)]
    if layer.norm is None:
        return x
    return _norm(layer.norm, EMBEDDING_NORM_EPS, weights, "norm", x)


def _patches(layer: PatchLayer, weights: ReferenceWeights, images: Tensor) -> Tensor:
    kernel = weights["patches.weight"].view(-1, layer.channels, layer.patch, layer.patch)
    x = F.conv2d(images.to(kernel.dtype), kernel, weights.get("patches.bias"), stride=layer.patch)
    x = x.flatten(2).transpose(1, 2)
    if layer.class_token:
        x = torch.cat((weights["class_token"].expand(len(x), 1, -1), x), dim=1)
    if layer.positions:
        x = x + weights["positions.weight"]
    if layer.norm is None:
        return x
    return _norm(layer.norm, EMBEDDING_NORM_EPS, weights, "norm", x)


def _block(
    layer: BlockLayer,
    weights: ReferenceWeights,
    x: Tensor,
    source: Tensor | None,
    bias: Tensor | None,
    router: ReferenceRouter | None,
    seen: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    spec, feed = layer.attention, layer.mlp
    if isinstance(spec, Attention) and spec.relative_buckets:
        bias = _relative_bias(spec, weights["relative.weight"], x.shape[1])
    parts: list[tuple[str, Callable[[Tensor], Tensor]]] = [
        ("attention", lambda h: _mixed(layer, weights, h, bias, seen))
    ]
    if (cross := layer.cross_attention) is not None:
        if source is None:
            raise TypeError("cross-attention has something to read")
        parts.append(
            ("cross", lambda h: _attention(layer, cross, weights, h, source, None, "cross_"))
        )
    parts.append(("mlp", lambda h: _fed_forward(feed, weights, h, router)))

    def normed(name: str, h: Tensor) -> Tensor:
        return _norm(layer.norm, layer.norm_eps, weights, f"{name}_norm", h)

    entry = x
    for name, part in parts:
        if layer.norm_placement == "post":
            x = normed(name, x + part(x))
        elif layer.norm_placement == "after":
            x = x + normed(f"{name}_post", part(x))
        elif layer.norm_placement == "sandwich":
            x = x + normed(f"{name}_post", part(normed(name, x)))
        elif layer.parallel:
            x = x + part(normed("attention" if layer.shared_norm else name, entry))
        else:
            x = x + part(normed(name, x))
    return x, bias


def _mixed(
    layer: BlockLayer,
    weights: ReferenceWeights,
    x: Tensor,
    bias: Tensor | None,
    seen: Tensor | None,
) -> Tensor:
    spec = layer.attention
    if isinstance(spec, LatentAttention):
        return reference_latent_attention(spec, layer.norm_eps, weights, x)
    if not isinstance(spec, Attention):
        raise TypeError("the reference has attention and latent attention")
    score_bias = bias if spec.relative_buckets or spec.shared_bias else seen
    return _attention(layer, spec, weights, x, x, score_bias, "")


def _fed_forward(
    spec: FeedForward | None, weights: ReferenceWeights, x: Tensor, router: ReferenceRouter | None
) -> Tensor:
    if isinstance(spec, Moe):
        if router is None:
            raise TypeError("experts have a router")
        return reference_moe(spec, weights, x, router)
    if not isinstance(spec, Mlp):
        raise TypeError("the reference has MLPs and experts")
    return _mlp(spec, weights, x)


def _attention(
    layer: BlockLayer,
    spec: Attention,
    weights: ReferenceWeights,
    x: Tensor,
    source: Tensor,
    bias: Tensor | None,
    prefix: str,
) -> Tensor:
    projected = [
        linear(weights, f"{prefix}{name}", feed)
        for name, feed in (("query", x), ("key", source), ("value", source))
    ]
    if spec.qk_norm_joint:
        for index, name in enumerate(("query", "key")):
            projected[index] = _norm(
                "rmsnorm", layer.norm_eps, weights, f"{prefix}{name}_norm", projected[index]
            )
    query, key, value = (
        part.unflatten(-1, (-1, spec.head_dim)).transpose(1, 2)  # type: ignore[no-untyped-call]
        for part in projected
    )
    if spec.qk_norm and not spec.qk_norm_joint:
        query, key = (
            _norm("rmsnorm", layer.norm_eps, weights, f"{prefix}{name}_norm", heads)
            for name, heads in (("query", query), ("key", key))
        )
    if spec.rotary:
        query, key = (_rotate(heads, spec.rope_theta) for heads in (query, key))
    repeats = spec.heads // spec.kv_heads
    key, value = (heads.repeat_interleave(repeats, dim=1) for heads in (key, value))
    causal = spec.mask == "causal" and not prefix
    if bias is not None and causal:
        later = torch.ones(bias.shape[-2:], dtype=torch.bool, device=bias.device).triu(1)
        bias, causal = bias.masked_fill(later, -math.inf), False
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, is_causal=causal)
    return linear(weights, f"{prefix}output", mixed.transpose(1, 2).flatten(2))


def _relative_bias(spec: Attention, table: Tensor, seq: int) -> Tensor:
    """(heads, seq, seq), pair by pair as T5 counts distances."""
    both = spec.mask == "full"
    side = spec.relative_buckets // 2 if both else spec.relative_buckets
    of_distance = [_bucket(distance, side) for distance in range(seq)]
    rows = [
        [of_distance[abs(q - k)] + (side if both and k > q else 0) for k in range(seq)]
        for q in range(seq)
    ]
    return table[torch.tensor(rows, device=table.device)].permute(2, 0, 1)


def _bucket(distance: int, side: int) -> int:
    exact = max(1, side // 2)
    if distance < exact:
        return distance
    furthest = max(LAST_RANGE_FROM, exact + 1)
    share = math.log(distance / exact) / math.log(furthest / exact)
    return min(side - 1, exact + int(share * (side - exact)))


def _mlp(spec: Mlp, weights: ReferenceWeights, x: Tensor) -> Tensor:
    used, up = ACTIVATIONS[spec.activation], linear(weights, "up", x)
    inner = used(linear(weights, "gate", x)) * up if spec.gated else used(up)
    return linear(weights, "down", inner)


def _norm(kind: str, eps: float, weights: ReferenceWeights, name: str, x: Tensor) -> Tensor:
    weight = weights[f"{name}.weight"]
    if kind != "rmsnorm":
        return F.layer_norm(x, weight.shape, weight, weights[f"{name}.bias"], eps)
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def _rotate(x: Tensor, theta: float) -> Tensor:
    seq, dim = x.shape[-2:]
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    angles = torch.outer(torch.arange(seq, dtype=torch.float64), theta**-exponents)
    turned = torch.polar(torch.ones_like(angles), angles).to(x.device, torch.complex64)
    real, imaginary = x.float().chunk(2, dim=-1)
    y = torch.complex(real, imaginary) * turned
    return torch.cat((y.real, y.imag), dim=-1).to(x.dtype)


__all__ = ["SCALE", "run_layer"]
