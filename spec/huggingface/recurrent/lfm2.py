"""LFM2 (arXiv:2511.23404): gated short convolutions and attention; MLPs or experts."""

from __future__ import annotations

from ...model.feed_forward import FeedForward
from ...model.model_spec import (
    BlockLayer,
    EmbeddingLayer,
    Mixer,
    Mlp,
    ModelSpec,
    Moe,
    ShortConvolution,
)
from ..config_keys import ConfigKeys
from ..family import Family, decoder, runs_of
from ..llama import DecoderRules, attention_of

THETA = 1e6
TYPES = ("full_attention", "conv")


def lfm2(config: ConfigKeys, name: str) -> ModelSpec:
    """LFM2: an MLP in every block, its width adjusted as the class does."""
    layers = config.layer_count()
    mlp = Mlp(ffn=_adjusted_width(config), activation="swiglu")
    return _decoder(config, name, _types(config, layers), [mlp] * layers)


def lfm2_moe(config: ConfigKeys, name: str) -> ModelSpec:
    """LFM2 with experts behind ``num_dense_layers``: sigmoid routing."""
    layers = config.layer_count()
    moe = Moe(
        experts=config.count_or("num_experts", 32),
        topk=config.count_or("num_experts_per_tok", 4),
        ffn=config.count_or("moe_intermediate_size", 1792),
        score="sigmoid",
    )
    key = "num_dense_layers"
    dense = config.count(key, 0) if config.has(key) else config.count_or(key, 2)
    parts: list[FeedForward] = [moe] * layers
    if dense:
        mlp = Mlp(ffn=config.count_or("intermediate_size", 7168))
        parts = [mlp if i < dense else moe for i in range(layers)]
    return _decoder(config, name, _types(config, layers), parts)


def _types(config: ConfigKeys, layers: int) -> list[str]:
    """Kinds of all layers; without a list, attention on ``full_attn_idxs`` or everywhere."""
    types = config.choices("layer_types", layers, TYPES)
    if types is not None:
        return types
    key = "full_attn_idxs"
    attending = config.document.get(key)
    if attending is None:
        config.assume("layer_types", "full_attention")
        return ["full_attention"] * layers
    if not isinstance(attending, list) or not all(type(i) is int for i in attending):
        raise config.error(key, "a list of layer numbers")
    return ["full_attention" if i in attending else "conv" for i in range(layers)]


def _adjusted_width(config: ConfigKeys) -> int:
    """Two thirds of the stated width, times a factor, in multiples."""
    old = config.has("block_ff_dim")
    width = config.count(old) if old else config.count_or("intermediate_size", 12288)
    if not config.flag_or("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    key = "block_ffn_dim_multiplier"
    if key in config.document and config.document[key] is None:
        return width
    width = int(config.number_or(key, 1.0) * width)
    multiple = config.count_or("block_multiple_of", 256)
    return -(-width // multiple) * multiple


def _decoder(
    config: ConfigKeys, name: str, types: list[str], parts: list[FeedForward]
) -> ModelSpec:
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    rules = DecoderRules(kv_heads=8, qk_norm=True, theta=THETA)
    mixers: dict[str, Mixer] = {}
    if "full_attention" in types:
        mixers["full_attention"] = attention_of(config, hidden, rules)
    if "conv" in types:
        mixers["conv"] = ShortConvolution(
            channels=hidden,
            conv_kernel=config.count_or("conv_L_cache", 3),
            bias=config.flag_or("conv_bias", False),
        )
    eps = config.number_or("norm_eps", 1e-5)
    blocks = (
        BlockLayer(hidden=hidden, attention=mixers[kind], mlp=part, norm_eps=eps)
        for kind, part in zip(types, parts, strict=True)
    )
    old = config.has("tie_embedding")
    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=hidden),
        runs_of(blocks),
        norm="rmsnorm",
        norm_eps=eps,
        tied=config.flag(old) if old else config.flag_or("tie_word_embeddings", True),
    )


KNOWN = (
    *("full_attn_idxs", "block_ffn_dim_multiplier", "block_multiple_of", "conv_L_cache"),
    *("conv_bias", "num_attention_heads", "num_key_value_heads", "intermediate_size"),
    *("conv_dim", "conv_dim_out", "block_dim", "block_norm_eps", "block_use_swiglu"),
    *("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init"),
    *("conv_use_xavier_init", "num_heads", "use_pos_enc", "theta"),
)
"""Keys of kinds of blocks that a model may lack, and second spellings of sizes."""
FAMILIES = (
    Family(model_type="lfm2", config_class="Lfm2Config", build=lfm2, dropout={}, known=KNOWN),
    Family(
        model_type="lfm2_moe",
        config_class="Lfm2MoeConfig",
        build=lfm2_moe,
        dropout={},
        experts=True,
        known=("use_expert_bias", *KNOWN),
    ),
)
