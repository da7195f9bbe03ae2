"""IBM Granite with experts or state spaces: granitemoe, granitemoeshared, granitemoehybrid."""

from __future__ import annotations

from dataclasses import replace

from ..model.feed_forward import FeedForward
from ..model.model_spec import (
    Attention,
    Mixer,
    Mlp,
    ModelSpec,
    Moe,
    StateSpace,
)
from .activations import activation
from .config_keys import ConfigKeys
from .decoders import GRANITE_MULTIPLIERS, note_multipliers
from .family import Family, parts_decoder
from .llama import DecoderRules, attention_of

RULES = DecoderRules(kv_heads=None, bias_key="attention_bias")
HYBRID_TYPES = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "linear_attention": "linear_attention",
    "full_attention": "full_attention",
}


def granitemoe(config: ConfigKeys, name: str) -> ModelSpec:
    """Granite 3.0 with experts (IBM, 2024)."""
    return _same_layers(config, name, shared_ffn=0)


def granitemoeshared(config: ConfigKeys, name: str) -> ModelSpec:
    """The same with shared experts."""
    key = "shared_intermediate_size"
    width = config.count(key, 0) if config.has(key) else config.count_or(key, 0)
    return _same_layers(config, name, shared_ffn=width)


def _same_layers(config: ConfigKeys, name: str, shared_ffn: int) -> ModelSpec:
    hidden, layers = config.size("hidden_size"), config.layer_count()
    attention = attention_of(config, hidden, RULES)
    moe = _experts(config, shared_ffn)
    return _decoder(config, name, [attention] * layers, moe)


def granitemoehybrid(config: ConfigKeys, name: str) -> ModelSpec:
    """Granite 4.0 (IBM, 2025): Mamba-2 or attention, then experts or an MLP."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    key = config.has("layers_block_type") or "layer_types"
    listed = config.choices(key, layers, HYBRID_TYPES)
    if listed is None:
        config.assume(key, "linear_attention")
    types = [HYBRID_TYPES[kind] for kind in listed or ["linear_attention"] * layers]
    parts: dict[str, Mixer] = {}
    if "linear_attention" in types:
        parts["linear_attention"] = mamba_state_space(config, hidden)
    if "full_attention" in types:
        parts["full_attention"] = _attention(config, hidden)
    key = "num_local_experts"
    experts = config.count(key, 0) if config.has(key) else config.count_or(key, 8)
    width = config.count_or("shared_intermediate_size", 1024)
    gate = activation(config, "hidden_act", "silu", gated=True)
    part: FeedForward = Mlp(ffn=width, activation=gate)
    if experts:
        part = _experts(config, width)
    return _decoder(config, name, [parts[kind] for kind in types], part)


def _attention(config: ConfigKeys, hidden: int) -> Attention:
    """Attention of a hybrid, by default without positions."""
    attention = attention_of(config, hidden, RULES)
    if config.document.get("position_embedding_type") == "rope":
        return attention
    return replace(attention, rotary=False, rope_theta=10000.0)


def mamba_head_dim(config: ConfigKeys, heads: int, inner: int, allowed: str) -> int:
    """Width of a head of ``inner`` channels, given or as their number has it.

    Raises:
        InputError: heads of that width do not make ``inner`` channels.
    """
    width = "mamba_d_head"
    automatic = config.document.get(width, "auto") == "auto"
    head_dim = inner // heads if automatic else config.count(width)
    if heads * head_dim != inner:
        raise config.error("mamba_n_heads", allowed)
    return head_dim


def mamba_state_space(config: ConfigKeys, hidden: int) -> StateSpace:
    """Mamba-2 under the keys of Granite 4.0 and Bamba, as wide as ``mamba_expand`` says."""
    heads = config.count_or("mamba_n_heads", 128)
    inner = config.count_or("mamba_expand", 2) * hidden
    allowed = f"mamba_expand x hidden_size {inner} = mamba_n_heads {heads} x mamba_d_head"
    head_dim = mamba_head_dim(config, heads, inner, allowed)
    return StateSpace(
        heads=heads,
        head_dim=head_dim,
        state_dim=config.count_or("mamba_d_state", 256),
        groups=config.count_or("mamba_n_groups", 1),
        conv_kernel=config.count_or("mamba_d_conv", 4),
        chunk=config.count_or("mamba_chunk_size", 256),
        bias=config.flag_or("mamba_proj_bias", False),
        conv_bias=config.flag_or("mamba_conv_bias", True),
    )


def _experts(config: ConfigKeys, shared_ffn: int) -> Moe:
    return Moe(
        experts=config.count_or("num_local_experts", 8),
        topk=config.count_or("num_experts_per_tok", 2),
        ffn=config.count_or("intermediate_size", 11008),
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=shared_ffn,
    )


def _decoder(
    config: ConfigKeys, name: str, mixers: list[Mixer] | list[Attention], part: FeedForward
) -> ModelSpec:
    note_multipliers(config, GRANITE_MULTIPLIERS)
    return parts_decoder(config, name, mixers, [part] * len(mixers), 1e-6)


HYBRID_KNOWN = (
    *("num_attention_heads", "num_key_value_heads", "attention_bias", "position_embedding_type"),
    *("intermediate_size", "num_experts_per_tok", "normalization_function", "rope_theta"),
    *("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv"),
    *("mamba_expand", "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias"),
)
"""Keys of kinds of blocks that a model may lack."""
FAMILIES = (
    Family(
        model_type="granitemoe",
        config_class="GraniteMoeConfig",
        build=granitemoe,
        experts=True,
    ),
    Family(
        model_type="granitemoeshared",
        config_class="GraniteMoeSharedConfig",
        build=granitemoeshared,
        experts=True,
    ),
    Family(
        model_type="granitemoehybrid",
        config_class="GraniteMoeHybridConfig",
        build=granitemoehybrid,
        experts=True,
        known=HYBRID_KNOWN,
    ),
)
