"""Later mixtures of experts: olmoe, flex_olmo, phimoe, minimax_m2, hunyuan_v1_moe, llama4_text."""

from __future__ import annotations

from dataclasses import replace

from ..inputs.typed_keys import json_text
from ..model.feed_forward import FeedForward
from ..model.model_spec import BlockLayer, EmbeddingLayer, Mlp, ModelSpec, Moe
from .activations import activation
from .config_keys import ConfigKeys
from .decoders import note_late_norms, rotated_layers
from .family import decoder, experts_family, parts_decoder, runs_of
from .llama import DecoderRules, attention_of
from .positions import same_window

OLMOE = DecoderRules(
    kv_heads=None, bias_key="attention_bias", qk_norm=True, qk_norm_joint=True, eps=1e-5
)
FLEX_OLMO = replace(OLMOE, norm_placement="after", theta=500000.0, eps=1e-6)
PHIMOE = DecoderRules(kv_heads=8, bias_key="attention_bias", norm="layernorm", theta=1e6, eps=1e-5)
MINIMAX_M2 = DecoderRules(
    kv_heads=8, head_dim=128, qk_norm=True, qk_norm_joint=True, rotary_fraction=1.0, theta=5e6
)
LLAMA4 = DecoderRules(kv_heads=8, head_dim=128, bias_key="attention_bias", theta=500000.0)
CHUNK_TYPES = ("chunked_attention", "full_attention")
HUNYUAN = DecoderRules(kv_heads=None, bias_key="attention_bias", qk_norm=True, eps=1e-5)


def olmoe(config: ConfigKeys, name: str) -> ModelSpec:
    """OLMoE (arXiv:2409.02060): norms over all heads together."""
    clip = "clip_qkv"
    if config.has(clip):
        why = "bounds of queries, keys and values are neither priced nor run"
        config.assume(clip, config.number(clip), why)
    moe = _experts(config, experts=64, topk=8, ffn=2048)
    return _decoder(config, name, OLMOE, moe)


def flex_olmo(config: ConfigKeys, name: str) -> ModelSpec:
    """FlexOlmo (arXiv:2507.07024): OLMo 2 with experts."""
    moe = _experts(config, experts=7, topk=5, ffn=11008)
    return _decoder(config, name, FLEX_OLMO, moe)


def phimoe(config: ConfigKeys, name: str) -> ModelSpec:
    """Phi-3.5-MoE (arXiv:2404.14219): layer norms, two experts sampled by SparseMixer."""
    why = "the class samples its experts (arXiv:2409.12136); priced and run as the best by softmax"
    config.assume("router", "SparseMixer", why)
    moe = _experts(config, experts=16, topk=2, ffn=6400)
    return _decoder(config, name, PHIMOE, moe, head_bias=config.flag_or("lm_head_bias", False))


def minimax_m2(config: ConfigKeys, name: str) -> ModelSpec:
    """MiniMax-M2 (2025): norms over all heads together, partial rotation, sigmoid routing."""
    rules, key = MINIMAX_M2, "rotary_dim"
    if config.has(key):
        width = config.count_or("head_dim", 128)
        rules = replace(rules, rotary_fraction=config.count(key) / width)
    moe = replace(_experts(config, experts=256, topk=8, ffn=1536), score="sigmoid")
    return _decoder(config, name, rules, moe)


def hunyuan_v1_moe(config: ConfigKeys, name: str) -> ModelSpec:
    """Hunyuan-A13B (2025): normed heads, a shared expert as wide as the others."""
    layers = config.layer_count()
    note_late_norms(config)
    ffn = config.count_or("intermediate_size", 11008)
    moe = Moe(
        experts=_of_all_layers(config, config.has("num_local_experts") or "num_experts", layers),
        topk=_of_all_layers(config, config.has("num_experts_per_tok") or "moe_topk", layers),
        ffn=ffn,
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=ffn,
    )
    return _decoder(config, name, HUNYUAN, moe)


def llama4(config: ConfigKeys, name: str) -> ModelSpec:
    """Text of Llama 4 (Meta, 2025): chunks with positions, full layers without, one expert more."""
    layers, hidden = config.layer_count(), config.size("hidden_size")
    attention = attention_of(config, hidden, LLAMA4)
    if config.flag_or("attn_temperature_tuning", True):
        why = "a product of queries at far positions, neither priced nor run"
        config.assume("attn_temperature_tuning", True, why)
    normed = config.flag_or("use_qk_norm", True)
    positions = rotated_layers(config, layers)
    attentions = [
        replace(
            attention,
            rotary=rotary,
            chunk=chunk,
            qk_norm=normed and rotary,
            qk_norm_weight=not (normed and rotary),
        )
        for rotary, chunk in zip(positions, _chunks(config, positions), strict=True)
    ]
    return parts_decoder(config, name, attentions, _llama4_parts(config, layers), eps=1e-5)


def _chunks(config: ConfigKeys, rotated: list[bool]) -> list[int | None]:
    """Chunks of layers with positions, or of those that ``layer_types`` names."""
    types = config.choices("layer_types", len(rotated), CHUNK_TYPES)
    chunked = rotated if types is None else [kind == CHUNK_TYPES[0] for kind in types]
    key = "attention_chunk_size"
    if not any(chunked) or (key in config.document and config.document[key] is None):
        return [None] * len(rotated)
    chunk = config.count_or(key, 8192)
    return [chunk if is_chunked else None for is_chunked in chunked]


def _llama4_parts(config: ConfigKeys, layers: int) -> list[FeedForward]:
    """Experts beside a shared one on the layers of ``moe_layers``, wide MLPs on the others."""
    ffn = config.count_or("intermediate_size", 8192)
    moe = Moe(
        experts=config.count_or("num_local_experts", 16),
        topk=config.count_or("num_experts_per_tok", 1),
        ffn=ffn,
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=ffn,
        score="sigmoid",
        weigh="inputs",
    )
    sparse, key = config.document.get("moe_layers"), "moe_layers"
    if sparse is None:
        every = config.count_or("interleave_moe_layer_step", 1)
        sparse = range(every - 1, layers, every)
    elif not isinstance(sparse, list) or not all(type(i) is int for i in sparse):
        raise config.error(key, "a list of layer numbers")
    if len(set(sparse) & set(range(layers))) == layers:
        return [moe] * layers
    mlp = Mlp(ffn=config.count_or("intermediate_size_mlp", 16384), activation=moe.activation)
    return [moe if i in sparse else mlp for i in range(layers)]


def _of_all_layers(config: ConfigKeys, key: str, layers: int) -> int:
    """A number, or a list of the same number for each layer; 1 by default."""
    given = config.document.get(key)
    if not isinstance(given, list):
        return config.count_or(key, 1)
    if len(given) < layers or any(type(x) is not int or x < 1 for x in given):
        raise config.error(key, f"a number, or one for each of the {layers} layers")
    if len(set(given[:layers])) > 1:
        raise config.refuse(key, f"use one number for all layers, not {json_text(given)}")
    return int(given[0])


def _experts(config: ConfigKeys, *, experts: int, topk: int, ffn: int) -> Moe:
    """Experts of ``intermediate_size``, and the class's defaults."""
    local = config.has("num_local_experts", "num_experts")
    return Moe(
        experts=config.count_or(local or "num_local_experts", experts),
        topk=config.count_or("num_experts_per_tok", topk),
        ffn=config.count_or("intermediate_size", ffn),
        activation=activation(config, "hidden_act", "silu", gated=True),
    )


def _decoder(
    config: ConfigKeys, name: str, rules: DecoderRules, moe: Moe, *, head_bias: bool = False
) -> ModelSpec:
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    layers = config.layer_count()
    attention = attention_of(config, hidden, rules)
    eps = config.number_or("rms_norm_eps", rules.eps)
    blocks = (
        BlockLayer(
            hidden=hidden,
            attention=replace(attention, window=window),
            mlp=moe,
            norm=rules.norm,
            norm_eps=eps,
            norm_placement=rules.norm_placement,
        )
        for window in same_window(config, layers, None)
    )
    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=hidden),
        runs_of(blocks),
        norm=rules.norm,
        norm_eps=eps,
        tied=config.flag_or("tie_word_embeddings", False),
        head_bias=head_bias,
    )


LLAMA4_KNOWN = (
    *("interleave_moe_layer_step", "intermediate_size_mlp", "no_rope_layer_interval"),
    *("attention_chunk_size", "floor_scale", "attn_scale", "for_llm_compressor"),
)
FAMILIES = (
    experts_family("olmoe", "OlmoeConfig", olmoe),
    experts_family("flex_olmo", "FlexOlmoConfig", flex_olmo),
    experts_family("phimoe", "PhimoeConfig", phimoe, ("input_jitter_noise",)),
    experts_family("minimax_m2", "MiniMaxM2Config", minimax_m2, ("use_qk_norm", "qk_norm_type")),
    experts_family("llama4_text", "Llama4TextConfig", llama4, LLAMA4_KNOWN),
    experts_family("hunyuan_v1_moe", "HunYuanMoEV1Config", hunyuan_v1_moe, ("use_qk_norm",)),
)
