"""Dense layers, then experts beside shared ones: glm4_moe, exaone_moe, dots1, ernie4_5_moe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.feed_forward import FeedForward
from ..model.model_spec import Attention, BlockLayer, EmbeddingLayer, Mlp, ModelSpec, Moe
from .activations import activation
from .config_keys import ConfigKeys
from .decoders import exaone4_pattern
from .deepseek import dense_layers, multi_token_layers, shared_width, sigmoid_experts
from .family import WINDOW_KEYS, Family, decoder, runs_of
from .llama import DecoderRules, attention_of
from .positions import WINDOW_TYPES, patterned_window

ERNIE_THETA = 500000.0


def glm4_moe(config: ConfigKeys, name: str) -> ModelSpec:
    """GLM-4.5 (arXiv:2508.06471): half-turned heads, sigmoid routing, a multi-token layer."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    rules = DecoderRules(
        kv_heads=8, bias_key="attention_bias", output_bias=False, rotary_fraction=0.5
    )
    attention = replace(
        attention_of(config, hidden, rules), qk_norm=config.flag_or("use_qk_norm", False)
    )
    moe = sigmoid_experts(config, 128, 8, 1408, key=_experts_key(config))
    parts = dense_first(config, layers, moe, dense=1, dense_ffn=10944)
    return _decoder(config, name, [attention] * layers, parts, eps=1e-5, ahead=True)


def _experts_key(config: ConfigKeys) -> str:
    return config.has("num_local_experts") or "n_routed_experts"


def solar_open(config: ConfigKeys, name: str) -> ModelSpec:
    """Solar Open (Upstage, 2025): experts beside a shared one in every block, sigmoid routing."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    rules = DecoderRules(
        kv_heads=8,
        head_dim=128,
        bias_key="attention_bias",
        output_bias=False,
        rotary_fraction=1.0,
        theta=1e6,
    )
    attention = attention_of(config, hidden, rules)
    moe = sigmoid_experts(config, 128, 8, 1280, key=_experts_key(config))
    return _decoder(config, name, [attention] * layers, [moe] * layers, eps=1e-5)


def exaone_moe(config: ConfigKeys, name: str) -> ModelSpec:
    """K-EXAONE (LG AI Research, 2026): normed heads, turned in windows only, sigmoid routing."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    attention = attention_of(config, hidden, DecoderRules(kv_heads=32, qk_norm=True))
    windows = patterned_window(config, layers, 4096, full_every=exaone4_pattern(config))
    turned = config.document.get("sliding_window", 0) is None
    attentions = [
        replace(attention, window=window, rotary=window is not None or turned) for window in windows
    ]
    ffn = config.count_or("moe_intermediate_size", 1024)
    moe = Moe(
        experts=config.count_or("num_experts", 64),
        topk=config.count_or("num_experts_per_tok", 8),
        ffn=ffn,
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=ffn * _whole(config, "num_shared_experts", 1),
        score="sigmoid",
        groups=config.count_or("n_group", 1),
        groups_per_token=config.count_or("topk_group", 1),
    )
    parts = dense_first(config, layers, moe, dense=1, dense_ffn=16384)
    return _decoder(config, name, attentions, parts, eps=1e-5)


def dots1(config: ConfigKeys, name: str) -> ModelSpec:
    """dots.llm1 (arXiv:2506.05767): normed heads, sigmoid routing, shared experts."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    rules = DecoderRules(kv_heads=32, bias_key="attention_bias", qk_norm=True)
    attention = attention_of(config, hidden, rules)
    config.require(("n_routed_experts", "n_shared_experts", "num_experts_per_tok"))
    moe = Moe(
        experts=config.count("n_routed_experts"),
        topk=config.count("num_experts_per_tok"),
        ffn=config.count_or("moe_intermediate_size", 1408),
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=shared_width(config, 1, 1408),
        score="sigmoid",
        groups=config.count_or("n_group", 1),
        groups_per_token=config.count_or("topk_group", 1),
    )
    attentions = [replace(attention, window=window) for window in _late_windows(config, layers)]
    parts = dense_first(config, layers, moe, dense=0, dense_ffn=10944)
    return _decoder(config, name, attentions, parts, eps=1e-6)


def _late_windows(config: ConfigKeys, layers: int) -> list[int | None]:
    """Windows of dots1: on layers from ``max_window_layers`` on, or by ``layer_types``."""
    if "sliding_window" in config.document and config.document["sliding_window"] is None:
        return [None] * layers
    types = config.choices("layer_types", layers, WINDOW_TYPES)
    if types is None:
        key = "max_window_layers"
        border = config.count(key, 0) if config.has(key) else config.count_or(key, 62)
        types = [WINDOW_TYPES[i >= border] for i in range(layers)]
    if "sliding_attention" not in types:
        return [None] * layers
    window = config.count_or("sliding_window", 4096)
    return [window if kind == "sliding_attention" else None for kind in types]


def ernie4_5_moe(config: ConfigKeys, name: str) -> ModelSpec:
    """ERNIE 4.5 (Baidu, 2025): experts on every ``moe_layer_interval``-th layer of a range."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    rules = DecoderRules(kv_heads=4, theta=ERNIE_THETA)
    attention = attention_of(config, hidden, rules)
    bias = "use_bias"
    if config.has(bias) and config.flag(bias):
        raise config.refuse(bias, "use false beside experts")
    ffn = config.count_or("moe_intermediate_size", 1536)
    shared = "moe_num_shared_experts"
    moe = Moe(
        experts=config.count_or(config.has("num_experts") or "moe_num_experts", 64),
        topk=config.count_or(config.has("num_experts_per_tok") or "moe_k", 6),
        ffn=ffn,
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=ffn * _whole(config, shared, 2),
    )
    parts = _layers_of_experts(config, layers, moe)
    return _decoder(config, name, [attention] * layers, parts, eps=1e-5, tied=True)


def _layers_of_experts(config: ConfigKeys, layers: int, moe: Moe) -> list[FeedForward]:
    first = _whole(config, "moe_layer_start_index", 1)
    key = "moe_layer_end_index"
    last = layers - 1
    if config.document.get(key, -1) != -1:
        last = config.count(key, 0)
    every = config.count_or("moe_layer_interval", 1)
    sparse = [(i + 1) % every == 0 and first <= i <= last for i in range(layers)]
    return _mixed(config, sparse, moe, 12288)


def dense_first(
    config: ConfigKeys, layers: int, moe: Moe, *, dense: int, dense_ffn: int
) -> list[FeedForward]:
    """MLPs on the first layers, by ``first_k_dense_replace`` or a list; experts on the others.

    Args:
        config: the configuration.
        layers: number of blocks.
        moe: the mixture of experts.
        dense: the class's default number of dense layers.
        dense_ffn: its default width of their MLPs.
    """
    first = dense_layers(config, layers, dense)
    return _mixed(config, [i >= first for i in range(layers)], moe, dense_ffn)


def _mixed(config: ConfigKeys, sparse: list[bool], moe: Moe, ffn: int) -> list[FeedForward]:
    """Experts where ``sparse`` says so; an MLP of ``intermediate_size`` on the other layers."""
    if all(sparse):
        return [moe] * len(sparse)
    mlp = Mlp(ffn=config.count_or("intermediate_size", ffn), activation=moe.activation)
    return [moe if is_sparse else mlp for is_sparse in sparse]


def _whole(config: ConfigKeys, key: str, default: int) -> int:
    """A whole number that may be 0, or the class's default."""
    return config.count(key, 0) if config.has(key) else config.count_or(key, default)


def _decoder(
    config: ConfigKeys,
    name: str,
    attentions: Sequence[Attention],
    parts: Sequence[FeedForward],
    *,
    eps: float,
    tied: bool = False,
    ahead: bool = False,
) -> ModelSpec:
    """A decoder of these parts; ``ahead``: multi-token layers like the last block may follow."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    eps = config.number_or("rms_norm_eps", eps)
    blocks = [
        BlockLayer(hidden=hidden, attention=attention, mlp=part, norm_eps=eps)
        for attention, part in zip(attentions, parts, strict=True)
    ]
    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=hidden),
        runs_of(blocks),
        norm="rmsnorm",
        norm_eps=eps,
        tied=config.flag_or("tie_word_embeddings", tied),
        multi_token=multi_token_layers(config, blocks[-1], vocab) if ahead else (),
    )


FAMILIES = (
    Family(
        model_type="glm4_moe",
        config_class="Glm4MoeConfig",
        build=glm4_moe,
        experts=True,
        known=("intermediate_size",),
    ),
    Family(model_type="solar_open", config_class="SolarOpenConfig", build=solar_open, experts=True),
    Family(
        model_type="exaone_moe",
        config_class="ExaoneMoeConfig",
        build=exaone_moe,
        experts=True,
        known=("sliding_window_pattern", "first_k_dense_replace"),
    ),
    Family(
        model_type="dots1",
        config_class="Dots1Config",
        build=dots1,
        experts=True,
        known=(*WINDOW_KEYS, "intermediate_size"),
    ),
    Family(
        model_type="ernie4_5_moe",
        config_class="Ernie4_5_MoeConfig",
        build=ernie4_5_moe,
        dropout={},
        experts=True,
        known=("moe_norm_min", "intermediate_size"),
    ),
)
