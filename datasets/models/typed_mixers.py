"""Token mixers of a typed model: attention, latent attention, state spaces, windows."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ...spec.errors import InputError, nearest_divisor
from ...spec.model.mixers import Attention, LatentAttention, Mask, Mixer, StateSpace
from .typed_reader import ModelKeys

LATENT_KEYS = ("q_rank", "nope_dim", "rope_dim", "value_dim")
STATE_KEYS = ("state_heads", "state_head_dim", "state_dim", "state_groups", "conv_kernel")
ATTENTION_KEYS = (
    "heads",
    "kv_heads",
    "head_dim",
    "rope_theta",
    "rotary_dim",
    "window",
    "full_every",
    "mask",
    "sinks",
    "output_gate",
    "softcap",
    "kv_rank",
    *LATENT_KEYS,
)


def mixers(keys: ModelKeys, hidden: int, layers: int, *, rotary: bool, mask: Mask) -> list[Mixer]:
    """The attention of every layer.

    With ``full_every`` n, each n-th has no window.
    """
    if keys.has("kv_rank"):
        return [_latent(keys, rotary=rotary)] * layers
    keys.only_with("kv_rank", *LATENT_KEYS)
    keys.only_with("window", "full_every")
    windowed = _attention(keys, hidden, rotary=rotary, mask=mask)
    every = keys.count_if("full_every")
    if every is None:
        return [windowed] * layers
    full = replace(windowed, window=None)
    return [full if (i + 1) % every == 0 else windowed for i in range(layers)]


def _attention(keys: ModelKeys, hidden: int, *, rotary: bool, mask: Mask) -> Attention:
    heads = keys.count("heads")
    kv_heads = _kv_heads(keys, heads)
    head_dim = _head_dim(keys, hidden, heads, rotary=rotary)
    if not rotary:
        for key in ("rope_theta", "rotary_dim"):
            if keys.has(key):
                raise keys.error(key, "nothing unless position is rope")
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary=rotary,
        rope_theta=keys.number_or_default("rope_theta") if rotary else 10000.0,
        qkv_bias=keys.flag_or_default("qkv_bias"),
        out_bias=keys.flag_or_default("out_bias"),
        qk_norm=keys.flag_or_default("qk_norm"),
        window=keys.count_if("window"),
        rotary_dim=keys.count_if("rotary_dim"),
        mask=cast(Mask, keys.choice("mask", ("causal", "full")) if keys.has("mask") else mask),
        sinks=keys.flag_if("sinks"),
        output_gate=keys.flag_if("output_gate"),
        softcap=keys.number_if("softcap"),
    )


def _kv_heads(keys: ModelKeys, heads: int) -> int:
    if keys.has("kv_heads"):
        kv_heads = keys.count("kv_heads")
    else:
        kv_heads = int(keys.assume("kv_heads", heads, "left out; as many as heads"))
    if heads % kv_heads:
        near = nearest_divisor(kv_heads, heads)
        raise keys.error("kv_heads", f"a divisor of heads {heads}", near)
    return kv_heads


def _head_dim(keys: ModelKeys, hidden: int, heads: int, *, rotary: bool) -> int:
    if keys.has("head_dim"):
        head_dim = keys.count("head_dim")
    elif hidden % heads:
        near = nearest_divisor(heads, hidden)
        raise keys.error("heads", f"a divisor of hidden {hidden}, or a head_dim", near)
    else:
        head_dim = int(keys.assume("head_dim", hidden // heads, "left out; hidden / heads"))
    if rotary and head_dim % 2 and not keys.has("rotary_dim"):
        allowed = "an even number (rotary positions)"
        raise InputError(f"{keys.where}: head_dim", head_dim, allowed, head_dim + 1)
    return head_dim


def _latent(keys: ModelKeys, *, rotary: bool) -> LatentAttention:
    """Multi-head latent attention, rotary channels included."""
    if not rotary:
        raise keys.error("position", "rope beside kv_rank", "rope")
    for key in ("kv_heads", "head_dim", "window", "sinks", "output_gate", "softcap"):
        if keys.has(key):
            raise keys.error(key, "nothing beside kv_rank")
    keys.require(("nope_dim", "rope_dim", "value_dim"))
    return LatentAttention(
        heads=keys.count("heads"),
        query_rank=keys.count_if("q_rank"),
        kv_rank=keys.count("kv_rank"),
        nope_dim=keys.count("nope_dim"),
        rope_dim=keys.count("rope_dim"),
        value_dim=keys.count("value_dim"),
        rope_theta=keys.number_or_default("rope_theta"),
        bias=keys.flag_or_default("qkv_bias"),
    )


def state_space(keys: ModelKeys, hidden: int) -> StateSpace:
    """Mamba-2, by default with heads of 64 and twice the width."""
    width = keys.count_if("state_head_dim")
    if width is None:
        width = int(keys.assume("state_head_dim", 64, "left out; Mamba-2's"))
    heads = keys.count_if("state_heads")
    if heads is None:
        if 2 * hidden % width:
            raise keys.error("state_heads", f"a number: {width} does not divide twice {hidden}")
        heads = int(keys.assume("state_heads", 2 * hidden // width, "left out; 2 x hidden wide"))
    states = keys.count_if("state_dim")
    if states is None:
        states = int(keys.assume("state_dim", 128, "left out; Mamba-2's"))
    return StateSpace(
        heads=heads,
        head_dim=width,
        state_dim=states,
        groups=keys.count_if("state_groups") or 1,
        conv_kernel=keys.count_if("conv_kernel") or 4,
    )
