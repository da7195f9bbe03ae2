"""Later dense decoders: ministral, granite, glm4, smollm3, olmo2 and 3, exaone4, others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ..errors import InputError
from ..model.model_spec import Attention, ModelSpec
from .config_keys import ConfigKeys
from .family import NO_DROPOUT, WINDOW_KEYS, Family
from .llama import GLM, MISTRAL, DecoderRules, attention_of, build, dense_decoder
from .positions import (
    WINDOW_TYPES,
    note_query_scale,
    patterned_window,
    rope_by_type,
    same_window,
    uses_window,
)

OLMO3_FULL_EVERY = EXAONE4_FULL_EVERY = CWM_FULL_EVERY = 4
GRANITE_MULTIPLIERS = (
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "logits_scaling",
)


def ministral(config: ConfigKeys, name: str) -> ModelSpec:
    """Ministral: Mistral, with windows on the layers of ``layer_types``."""
    attention, layers = _attention(config, MINISTRAL)
    windows = same_window(config, layers, 4096)
    types = config.choices("layer_types", layers, WINDOW_TYPES)
    if types is not None:
        pairs = zip(types, windows, strict=True)
        windows = [window if kind == "sliding_attention" else None for kind, window in pairs]
    return _windowed(config, name, MINISTRAL, attention, windows)


def ministral3(config: ConfigKeys, name: str) -> ModelSpec:
    """Ministral 3: Mistral; the queries of far positions are scaled."""
    attention, layers = _attention(config, MINISTRAL3)
    note_query_scale(config)
    windows = same_window(config, layers, None)
    return _windowed(config, name, MINISTRAL3, attention, windows)


def granite(config: ConfigKeys, name: str) -> ModelSpec:
    """Granite 3: Llama with multipliers."""
    note_multipliers(config, GRANITE_MULTIPLIERS)
    return build(config, name, GRANITE)


def note_multipliers(config: ConfigKeys, keys: tuple[str, ...]) -> None:
    """List multipliers other than 1: products with a number, neither priced nor run."""
    found = {key: config.number(key) for key in keys if config.has(key)}
    scaling = {key: value for key, value in found.items() if value != 1}
    if scaling:
        config.assume("multipliers", scaling, "products with a number, neither priced nor run")


def smollm3(config: ConfigKeys, name: str) -> ModelSpec:
    """SmolLM3: Llama; every fourth layer has no positions."""
    attention, layers = _attention(config, SMOLLM3)
    rotated = rotated_layers(config, layers)
    windows: list[int | None] = [None] * layers
    if uses_window(config):
        window = config.count_or("sliding_window", 4096)
        types = config.choices("layer_types", layers, WINDOW_TYPES)
        full = [t == "full_attention" for t in types] if types is not None else rotated
        windows = [None if is_full else window for is_full in full]
    attentions = (
        replace(attention, rotary=rotary, window=window)
        for rotary, window in zip(rotated, windows, strict=True)
    )
    return dense_decoder(config, name, SMOLLM3, attentions)


def rotated_layers(config: ConfigKeys, layers: int) -> list[bool]:
    """Layers with rotary positions: all but every fourth, or as ``no_rope_layers`` says."""
    key = "no_rope_layers"  # in spite of its name, a 1 for each layer with positions
    if config.document.get(key) in (None, []):
        every = config.count_or("no_rope_layer_interval", 4)
        return [(i + 1) % every != 0 for i in range(layers)]
    given = config.document[key]
    if not isinstance(given, list) or any(x not in (0, 1) for x in given) or len(given) < layers:
        raise InputError(f"{config.where}: {key}", "other entries", f"{layers} entries of 0 or 1")
    return [bool(x) for x in given[:layers]]


def hunyuan(config: ConfigKeys, name: str) -> ModelSpec:
    """HunYuan dense: Llama with norms on query and key heads."""
    note_late_norms(config)
    return build(config, name, HUNYUAN)


def note_late_norms(config: ConfigKeys) -> None:
    """List that the class rotates heads before it normalizes them."""
    why = "the class rotates heads first; priced and run the other way round, the same work"
    config.assume("qk_norm", "before the rotation", why)


def olmo3(config: ConfigKeys, name: str) -> ModelSpec:
    """OLMo 3: OLMo 2, with windows on three of four layers."""
    attention, layers = _attention(config, OLMO3, theta=rope_by_type(config, 500000.0))
    windows = patterned_window(config, layers, 4096, full_every=OLMO3_FULL_EVERY)
    return _windowed(config, name, OLMO3, attention, windows)


def exaone4(config: ConfigKeys, name: str) -> ModelSpec:
    """EXAONE 4 (arXiv:2507.11407): norms after parts; full layers beside windows lack positions."""
    attention, layers = _attention(config, EXAONE4)
    windows = patterned_window(config, layers, 4096, full_every=exaone4_pattern(config))
    hybrid = config.document.get("sliding_window", 0) is not None
    attentions = (
        replace(attention, window=window, rotary=window is not None or not hybrid)
        for window in windows
    )
    return dense_decoder(config, name, EXAONE4, attentions)


def cwm(config: ConfigKeys, name: str) -> ModelSpec:
    """CWM (arXiv:2510.02387): Llama; all layers but the first of each four have windows."""
    attention, layers = _attention(config, CWM)
    types = config.choices("layer_types", layers, WINDOW_TYPES)
    full = [i % CWM_FULL_EVERY == 0 for i in range(layers)]
    if types is not None:
        full = [kind == "full_attention" for kind in types]
    pairs = zip(full, same_window(config, layers, 8192), strict=True)
    windows = [None if is_full else window for is_full, window in pairs]
    return _windowed(config, name, CWM, attention, windows)


def exaone4_pattern(config: ConfigKeys) -> int:
    """Every how manyth layer is full: a number, or letters such as LLLG."""
    key = "sliding_window_pattern"
    pattern = config.document.get(key)
    if config.has("layer_types") or pattern is None or pattern == 0:
        return EXAONE4_FULL_EVERY
    if isinstance(pattern, str) and pattern and pattern == "L" * (len(pattern) - 1) + "G":
        return len(pattern)
    return config.count(key)


def _attention(
    config: ConfigKeys, rules: DecoderRules, theta: float | None = None
) -> tuple[Attention, int]:
    """Attention of all layers, and their number."""
    hidden, layers = config.size("hidden_size"), config.layer_count()
    return attention_of(config, hidden, rules, theta), layers


def _windowed(
    config: ConfigKeys,
    name: str,
    rules: DecoderRules,
    attention: Attention,
    windows: list[int | None],
) -> ModelSpec:
    attentions = (replace(attention, window=window) for window in windows)
    return dense_decoder(config, name, rules, attentions)


MINISTRAL = MISTRAL
MINISTRAL3 = DecoderRules(ffn=14336, kv_heads=8, head_dim=128, theta=1e6, eps=1e-5)
GRANITE = DecoderRules(ffn=11008, kv_heads=None, bias_key="attention_bias", mlp_bias_key="mlp_bias")
GLM4 = replace(GLM, norm_placement="sandwich")
SMOLLM3 = DecoderRules(
    ffn=11008,
    kv_heads=4,
    bias_key="attention_bias",
    mlp_bias_key="mlp_bias",
    theta=2e6,
    tied=True,
)
SEED_OSS = DecoderRules(
    ffn=27648,
    kv_heads=8,
    head_dim=128,
    bias_key="attention_bias",
    bias=True,
    output_bias=False,
    output_bias_key="attention_out_bias",
    mlp_bias_key="mlp_bias",
    mlp_bias=False,
)
ERNIE4_5 = DecoderRules(
    ffn=3072,
    kv_heads=2,
    head_dim=128,
    bias_key="use_bias",
    mlp_bias_key="use_bias",
    theta=500000.0,
    eps=1e-5,
    tied=True,
)
HUNYUAN = DecoderRules(ffn=11008, kv_heads=None, bias_key="attention_bias", qk_norm=True, eps=1e-5)
OLMO2 = DecoderRules(
    ffn=11008,
    kv_heads=None,
    bias_key="attention_bias",
    qk_norm=True,
    qk_norm_joint=True,
    norm_placement="after",
    eps=1e-5,
)
OLMO3 = replace(OLMO2, theta=500000.0)
EXAONE4 = DecoderRules(ffn=16384, kv_heads=32, qk_norm=True, norm_placement="after", eps=1e-5)
CWM = DecoderRules(
    ffn=21504, kv_heads=8, head_dim=128, mlp_bias_key="mlp_bias", theta=1e6, eps=1e-5
)
INTERNLM3 = DecoderRules(
    ffn=10240,
    kv_heads=2,
    head_dim=128,
    bias_key="attention_bias",
    mlp_bias_key="mlp_bias",
    eps=1e-5,
)
IQUESTCODER = replace(INTERNLM3, ffn=27648, kv_heads=8)
HELIUM = DecoderRules(
    ffn=7040,
    kv_heads=20,
    head_dim=128,
    bias_key="attention_bias",
    output_bias=False,
    mlp_bias_key="mlp_bias",
    theta=100000.0,
    eps=1e-8,
)
ARCEE = DecoderRules(
    ffn=18432,
    kv_heads=None,
    bias_key="attention_bias",
    mlp_bias_key="mlp_bias",
    activation="relu2",
    gated=False,
    eps=1e-5,
)
JAIS2 = replace(ARCEE, ffn=26624, bias=True, norm="layernorm", eps_key="layer_norm_eps")
HUNYUAN_KNOWN = ("attention_head_dim", "use_qk_norm", "qk_norm_type")
SEED_OSS_DROPOUT = {"attention_dropout": 0.1, "residual_dropout": 0.1}


def _family(
    model_type: str,
    config_class: str,
    read: DecoderRules | Callable[[ConfigKeys, str], ModelSpec],
    dropout: Mapping[str, float] = NO_DROPOUT,
    known: tuple[str, ...] = (),
) -> Family:
    return Family(
        model_type=model_type,
        config_class=config_class,
        build=partial(build, rules=read) if isinstance(read, DecoderRules) else read,
        dropout=dropout,
        known=known,
    )


FAMILIES = (
    _family("ministral", "MinistralConfig", ministral),
    _family("ministral3", "Ministral3Config", ministral3),
    _family("granite", "GraniteConfig", granite),
    _family("glm4", "Glm4Config", GLM4),
    _family("smollm3", "SmolLM3Config", smollm3, known=(*WINDOW_KEYS, "no_rope_layer_interval")),
    _family("seed_oss", "SeedOssConfig", SEED_OSS, SEED_OSS_DROPOUT),
    _family("ernie4_5", "Ernie4_5Config", ERNIE4_5, {}),
    _family("hunyuan_v1_dense", "HunYuanDenseV1Config", hunyuan, known=HUNYUAN_KNOWN),
    _family("cwm", "CwmConfig", cwm),
    _family("internlm3", "InternLM3Config", INTERNLM3),
    _family("iquestcoder", "IQuestCoderConfig", IQUESTCODER),
    _family("helium", "HeliumConfig", HELIUM),
    _family("arcee", "ArceeConfig", ARCEE),
    _family("jais2", "Jais2Config", JAIS2),
    _family("olmo2", "Olmo2Config", OLMO2),
    _family("olmo3", "Olmo3Config", olmo3),
    _family("exaone4", "Exaone4Config", exaone4, known=("sliding_window_pattern",)),
)
