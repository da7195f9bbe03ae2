"""Gemma 1, 2 and 3 (arXiv:2403.08295, 2408.00118, 2503.19786), text only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import InputError
from ..inputs.typed_keys import TypedKeys
from ..model.mixers import Mask
from ..model.model_spec import Attention, BlockLayer, EmbeddingLayer, Mlp, ModelSpec
from .activations import activation
from .config_keys import ConfigKeys
from .family import Family, decoder, runs_of
from .llama import DecoderRules, attention_of
from .positions import note_scaling, patterned_window

GEMMA3_THETA, GEMMA3_LOCAL_THETA = 1e6, 1e4
GEMMA3_FULL_EVERY = 6


def gemma(config: ConfigKeys, name: str) -> ModelSpec:
    """Gemma: Llama with a GELU gate, wide heads and a tied embedding."""
    hidden = config.size("hidden_size")
    layers, vocab = config.layer_count(), config.size("vocab_size")
    attention = attention_of(config, hidden, _rules(16))
    block = BlockLayer(
        hidden=hidden,
        attention=replace(attention, mask=_mask(config)),
        mlp=_mlp(config, "hidden_act", 24576),
        norm_eps=config.number_or("rms_norm_eps", 1e-6),
    )
    return _decoder(config, name, vocab, [block] * layers)


def gemma2(config: ConfigKeys, name: str) -> ModelSpec:
    """Gemma 2: sandwich norms, capped scores and logits, windows."""
    hidden = config.size("hidden_size")
    layers, vocab = config.layer_count(), config.size("vocab_size")
    base = replace(
        attention_of(config, hidden, _rules(4)),
        mask=_mask(config),
        softcap=cap(config, "attn_logit_softcapping", 50.0),
    )
    windows = patterned_window(config, layers, 4096, full_every=2)
    return sandwiches(
        config,
        name,
        vocab,
        hidden,
        [replace(base, window=window) for window in windows],
        softcap=cap(config, "final_logit_softcapping", 30.0),
    )


def gemma3(config: ConfigKeys, name: str) -> ModelSpec:
    """Gemma 3: query and key norms.

    Windowed layers have rotary angles of their own.
    """
    hidden = config.size("hidden_size")
    layers, vocab = config.layer_count(), config.size("vocab_size")
    heads = config.size("num_attention_heads")
    base = Attention(
        heads=heads,
        kv_heads=config.kv_heads(heads, 4),
        head_dim=config.head_dim(hidden, heads, 256),
        qkv_bias=config.flag_or("attention_bias", False),
        out_bias=bool(config.document.get("attention_bias", False)),
        qk_norm=True,
        mask=_mask(config),
        softcap=cap(config, "attn_logit_softcapping", None),
    )
    every = GEMMA3_FULL_EVERY
    if config.has("sliding_window_pattern"):
        every = config.count("sliding_window_pattern")
    windows = patterned_window(config, layers, 4096, full_every=every)
    full, local = _gemma3_thetas(config)
    if base.mask == "full":
        windows = [None if w is None else w // 2 + 1 for w in windows]
    attentions = [
        replace(base, window=window, rope_theta=full if window is None else local)
        for window in windows
    ]
    capped = cap(config, "final_logit_softcapping", None)
    return sandwiches(config, name, vocab, hidden, attentions, softcap=capped)


def _rules(kv_heads: int) -> DecoderRules:
    return DecoderRules(kv_heads=kv_heads, head_dim=256, bias_key="attention_bias")


def _mask(config: ConfigKeys) -> Mask:
    key = "use_bidirectional_attention"
    return "full" if config.has(key) and config.flag(key) else "causal"


def cap(config: ConfigKeys, key: str, default: float | None) -> float | None:
    """The bound under ``key``; null, or no default, means none."""
    if key in config.document:
        return config.number(key) if config.has(key) else None
    return default if default is None else config.number_or(key, default)


def _mlp(config: ConfigKeys, key: str, ffn: int) -> Mlp:
    width = config.count_or("intermediate_size", ffn)
    if key == "hidden_act" and config.document.get(key) == "gelu":  # its old name
        return Mlp(ffn=width, activation="geglu_tanh")
    return Mlp(ffn=width, activation=activation(config, key, "gelu_pytorch_tanh", gated=True))


def _gemma3_thetas(config: ConfigKeys) -> tuple[float, float]:
    """Rotary bases of layers with full attention, and of windowed ones."""
    parameters = config.document.get("rope_parameters") or {}
    scaling = config.document.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping) or not isinstance(scaling, Mapping):
        allowed = "rope_scaling and rope_parameters as mappings"
        raise InputError(config.where, "something else", allowed)
    note_scaling(config, scaling)
    thetas = []
    keys = (
        ("full_attention", "rope_theta", GEMMA3_THETA),
        ("sliding_attention", "rope_local_base_freq", GEMMA3_LOCAL_THETA),
    )
    for kind, key, default in keys:
        inner = parameters.get(kind) or {}
        if not isinstance(inner, Mapping):
            raise InputError(f"{config.where}: rope_parameters", "something else", "mappings")
        note_scaling(config, inner)
        where = f"{config.where}: rope_parameters.{kind}"
        has_theta = inner.get("rope_theta") is not None
        theta = TypedKeys(inner, where).number("rope_theta") if has_theta else None
        thetas.append(config.number_or(key, default) if theta is None else theta)
    return thetas[0], thetas[1]


def sandwiches(
    config: ConfigKeys,
    name: str,
    vocab: int,
    hidden: int,
    attentions: list[Attention],
    softcap: float | None,
) -> ModelSpec:
    """The decoder of blocks with norms before and after each part."""
    mlp = _mlp(config, "hidden_activation", 9216)
    eps = config.number_or("rms_norm_eps", 1e-6)
    blocks = [
        BlockLayer(
            hidden=hidden, attention=attention, mlp=mlp, norm_eps=eps, norm_placement="sandwich"
        )
        for attention in attentions
    ]
    return _decoder(config, name, vocab, blocks, softcap)


def _decoder(
    config: ConfigKeys,
    name: str,
    vocab: int,
    blocks: list[BlockLayer],
    softcap: float | None = None,
) -> ModelSpec:
    why = "one multiplication of the embedding, neither priced nor run"
    config.assume("embedding_scale", "sqrt(hidden_size)", why)
    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=blocks[0].hidden),
        runs_of(blocks),
        norm="rmsnorm",
        norm_eps=blocks[0].norm_eps,
        tied=config.flag_or("tie_word_embeddings", True),
        softcap=softcap,
    )


FAMILIES = (
    Family(model_type="gemma", config_class="GemmaConfig", build=gemma),
    Family(model_type="gemma2", config_class="Gemma2Config", build=gemma2, known=("hidden_act",)),
    Family(
        model_type="gemma3_text",
        config_class="Gemma3TextConfig",
        build=gemma3,
        known=("hidden_act",),
    ),
)
