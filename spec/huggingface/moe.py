"""Mixtures of experts with ordinary attention: mixtral, qwen2_moe, qwen3_moe, gpt_oss."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..model.feed_forward import FeedForward
from ..model.model_spec import Mlp, ModelSpec, Moe
from .activations import activation
from .config_keys import ConfigKeys
from .family import WINDOW_KEYS, experts_family, parts_decoder
from .llama import DecoderRules, attention_of
from .positions import THETA, patterned_window, qwen_window, same_window, uses_window

GPT_OSS_THETA = 150000.0


def mixtral(config: ConfigKeys, name: str) -> ModelSpec:
    """Mixtral (arXiv:2401.04088)."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    attention = attention_of(config, hidden, DecoderRules(kv_heads=8, theta=1e6))
    moe = Moe(
        experts=config.count_or(config.has("num_experts") or "num_local_experts", 8),
        topk=config.count_or("num_experts_per_tok", 2),
        ffn=config.count_or("intermediate_size", 14336),
        activation=activation(config, "hidden_act", "silu", gated=True),
    )
    windows = same_window(config, layers, None)
    attentions = [replace(attention, window=window) for window in windows]
    return parts_decoder(config, name, attentions, [moe] * layers, eps=1e-5)


def qwen2_moe(config: ConfigKeys, name: str) -> ModelSpec:
    """Qwen2-MoE (arXiv:2407.10671): a shared expert behind a learned gate."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    rules = DecoderRules(kv_heads=16, bias_key="qkv_bias", bias=True, output_bias=False)
    attention = attention_of(config, hidden, rules)
    moe = Moe(
        experts=config.count_or("num_experts", 60),
        topk=config.count_or("num_experts_per_tok", 4),
        ffn=config.count_or("moe_intermediate_size", 1408),
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=config.count_or("shared_expert_intermediate_size", 5632),
        shared_gate=True,
        normalize=config.flag_or("norm_topk_prob", False),
    )
    windows = qwen_window(config, layers, late=False)
    attentions = [replace(attention, window=window) for window in windows]
    parts = sparse_layers(config, layers, moe, dense_ffn=5632)
    return parts_decoder(config, name, attentions, parts, eps=1e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3MoeDefaults:
    """Defaults of a class of Qwen3-MoE."""

    kv_heads: int = 4
    experts: int = 128
    topk: int = 8
    ffn: int = 768
    dense_ffn: int = 6144
    theta: float = THETA


QWEN3_MOE = Qwen3MoeDefaults()


def qwen3_moe(config: ConfigKeys, name: str, defaults: Qwen3MoeDefaults = QWEN3_MOE) -> ModelSpec:
    """Qwen3-MoE (arXiv:2505.09388): Qwen3's attention, no shared expert."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    rules = DecoderRules(
        kv_heads=defaults.kv_heads, bias_key="attention_bias", qk_norm=True, theta=defaults.theta
    )
    attention = attention_of(config, hidden, rules)
    moe = Moe(
        experts=config.count_or(config.has("num_local_experts") or "num_experts", defaults.experts),
        topk=config.count_or("num_experts_per_tok", defaults.topk),
        ffn=config.count_or("moe_intermediate_size", defaults.ffn),
        activation=activation(config, "hidden_act", "silu", gated=True),
        normalize=config.flag_or("norm_topk_prob", False),
    )
    windows = same_window(config, layers, 4096) if uses_window(config) else [None] * layers
    attentions = [replace(attention, window=window) for window in windows]
    parts = sparse_layers(config, layers, moe, dense_ffn=defaults.dense_ffn)
    return parts_decoder(config, name, attentions, parts, eps=1e-6)


def gpt_oss(config: ConfigKeys, name: str) -> ModelSpec:
    """GPT-OSS (arXiv:2508.10925): sinks, windows on every second layer, biases everywhere."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    rules = DecoderRules(
        kv_heads=8, head_dim=64, bias_key="attention_bias", bias=True, theta=GPT_OSS_THETA
    )
    attention = replace(attention_of(config, hidden, rules), sinks=True)
    activation(config, "hidden_act", "silu", gated=True)  # the clamp supports no other
    moe = Moe(
        experts=config.count_or(config.has("num_experts") or "num_local_experts", 128),
        topk=config.count_or("num_experts_per_tok", 4),
        ffn=config.count_or("intermediate_size", 2880),
        activation="clamped_swiglu",
        bias=True,
        router_bias=True,
    )
    windows = patterned_window(config, layers, 128, full_every=2)
    attentions = [replace(attention, window=window) for window in windows]
    return parts_decoder(config, name, attentions, [moe] * layers, eps=1e-5)


def sparse_layers(config: ConfigKeys, layers: int, moe: Moe, dense_ffn: int) -> list[FeedForward]:
    """Experts on every ``decoder_sparse_step``-th layer outside ``mlp_only_layers``.

    Args:
        config: a configuration of the Qwen families.
        layers: number of blocks.
        moe: the mixture of experts.
        dense_ffn: the class's default width of the other layers.
    """
    step = config.count_or("decoder_sparse_step", 1)
    dense_layers = config.document.get("mlp_only_layers") or []
    if not isinstance(dense_layers, list) or not all(type(i) is int for i in dense_layers):
        raise config.error("mlp_only_layers", "a list of layer numbers")
    sparse = [i not in set(dense_layers) and (i + 1) % step == 0 for i in range(layers)]
    if all(sparse):
        return [moe] * layers
    width = config.count_or("intermediate_size", dense_ffn)
    mlp = Mlp(ffn=width, activation=moe.activation)
    return [moe if is_sparse else mlp for is_sparse in sparse]


FAMILIES = (
    experts_family("mixtral", "MixtralConfig", mixtral),
    experts_family("qwen2_moe", "Qwen2MoeConfig", qwen2_moe, (*WINDOW_KEYS, "intermediate_size")),
    experts_family("qwen3_moe", "Qwen3MoeConfig", qwen3_moe, (*WINDOW_KEYS, "intermediate_size")),
    experts_family("gpt_oss", "GptOssConfig", gpt_oss, ("swiglu_alpha", "experts_per_token")),
)
