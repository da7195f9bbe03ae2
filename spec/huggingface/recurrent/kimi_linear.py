"""Kimi Linear (arXiv:2510.26692): Kimi delta attention, latent attention without positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...inputs.typed_keys import TypedKeys
from ...model.feed_forward import FeedForward
from ...model.model_spec import (
    BlockLayer,
    EmbeddingLayer,
    KimiDeltaAttention,
    LatentAttention,
    Mixer,
    Mlp,
    ModelSpec,
    Moe,
)
from ..activations import activation
from ..config_keys import ConfigKeys
from ..family import Family, rms_decoder

TYPES = ("full_attention", "linear_attention")
SPARSE_TYPES = ("dense", "sparse")
NESTED = "linear_attn_config"
FULL_EVERY = 4


def kimi_linear(config: ConfigKeys, name: str) -> ModelSpec:
    """Kimi Linear: dense layers, then experts beside a shared one; sigmoid routing."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    layers = config.layer_count()
    nested = config.document.get(NESTED) or {}
    if not isinstance(nested, Mapping):
        raise config.error(NESTED, "a mapping")
    types = _types(config, nested, layers)
    mixers: dict[str, Mixer] = {}
    if "full_attention" in types:
        mixers["full_attention"] = _latent(config)
    if "linear_attention" in types:
        mixers["linear_attention"] = _delta(config, nested)
    eps = config.number_or("rms_norm_eps", 1e-5)
    blocks = (
        BlockLayer(hidden=hidden, attention=mixers[kind], mlp=part, norm_eps=eps)
        for kind, part in zip(types, _parts(config, layers), strict=True)
    )
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden)
    return rms_decoder(config, name, embedding, blocks, eps)


def _types(config: ConfigKeys, nested: Mapping[str, Any], layers: int) -> list[str]:
    """Kinds of all layers: listed, by 1-based numbers, or every fourth but the first."""
    types = config.choices("layer_types", layers, TYPES)
    if types is not None:
        return types
    full = nested.get("full_attn_layers")
    if full is None:
        config.assume("layer_types", f"full_attention on every {FULL_EVERY}th but the first")
        return [TYPES[not (i and i % FULL_EVERY == 0)] for i in range(layers)]
    if not isinstance(full, list) or not all(type(i) is int for i in full):
        raise InputError(f"{config.where}: {NESTED}.full_attn_layers", full, "layer numbers")
    return [TYPES[i + 1 not in full] for i in range(layers)]


def _latent(config: ConfigKeys) -> LatentAttention:
    rank = config.count("q_lora_rank") if config.has("q_lora_rank") else None
    return LatentAttention(
        heads=config.size("num_attention_heads"),
        query_rank=rank,
        kv_rank=config.count_or("kv_lora_rank", 512),
        nope_dim=config.count_or("qk_nope_head_dim", 128),
        rope_dim=config.count_or("qk_rope_head_dim", 64),
        value_dim=config.count_or("v_head_dim", 128),
        bias=config.flag_or("attention_bias", False),
        rotary=False,
    )


def _delta(config: ConfigKeys, nested: Mapping[str, Any]) -> KimiDeltaAttention:
    keys = TypedKeys(nested, f"{config.where}: {NESTED}")

    def size(inner: str, key: str, default: int) -> int:
        return keys.count(inner) if keys.has(inner) else config.count_or(key, default)

    return KimiDeltaAttention(
        heads=size("num_heads", "linear_num_heads", 32),
        head_dim=size("head_dim", "linear_head_dim", 128),
        conv_kernel=size("short_conv_kernel_size", "linear_conv_kernel_dim", 4),
    )


def _parts(config: ConfigKeys, layers: int) -> list[FeedForward]:
    """MLPs on the first layers, experts on the others, or by ``mlp_layer_types``."""
    types = config.choices("mlp_layer_types", layers, SPARSE_TYPES)
    if types is None:
        key = "first_k_dense_replace"
        first = config.count(key, 0) if config.has(key) else config.count_or(key, 1)
        types = [SPARSE_TYPES[i >= first] for i in range(layers)]
    moe = _experts(config)
    if "dense" not in types:
        return [moe] * layers
    mlp = Mlp(ffn=config.count_or("intermediate_size", 9216), activation=moe.activation)
    return [mlp if kind == "dense" else moe for kind in types]


def _experts(config: ConfigKeys) -> Moe:
    if config.document.get("moe_layer_freq", 1) != 1:
        raise config.refuse("moe_layer_freq", "use 1")
    ffn = config.count_or("moe_intermediate_size", 1024)
    shared = config.has("n_shared_experts", "num_shared_experts")
    number = config.count(shared, 0) if shared else config.count_or("num_shared_experts", 1)
    return Moe(
        experts=config.count_or(config.has("num_experts") or "num_local_experts", 256),
        topk=config.count_or(config.has("num_experts_per_token") or "num_experts_per_tok", 8),
        ffn=ffn,
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=number * ffn,
        score="sigmoid",
        groups=config.count_or(config.has("num_expert_group") or "n_group", 1),
        groups_per_token=config.count_or("topk_group", 1),
    )


KNOWN = (
    *("num_key_value_heads", "head_dim", "qk_head_dim", "first_k_dense_replace", "mla_use_nope"),
    *("moe_renormalize", "moe_router_activation_func", "use_grouped_topk", "ep_size"),
    *("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim", "q_lora_rank"),
    *("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "attention_bias"),
    *("num_nextn_predict_layers",),
)
"""Keys that follow from others, or of kinds of layers that a model may lack."""
FAMILIES = (
    Family(
        model_type="kimi_linear",
        config_class="KimiLinearConfig",
        build=kimi_linear,
        experts=True,
        known=KNOWN,
    ),
)
