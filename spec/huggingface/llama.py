"""Llama and similar decoders: mistral, qwen2, qwen3, phi3, glm, starcoder2, nemotron."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from ..errors import InputError
from ..model.model_spec import Attention, BlockLayer, EmbeddingLayer, Mlp, ModelSpec, NormKind
from .activations import activation
from .config_keys import ConfigKeys
from .family import NO_DROPOUT, WINDOW_KEYS, Family, decoder, runs_of
from .positions import THETA, partial_rope, qwen_window, rope_theta, same_window


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRules:
    """Differences between the families; ``kv_heads`` None means as many as heads.

    ``bias_key`` names the key for biases of attention and ``bias`` is its default; without a key
    they always follow ``bias``. ``output_bias`` false leaves out that of attention's output in any
    case; ``output_bias_key`` names a key of its own. ``mlp_bias`` is the default of
    ``mlp_bias_key``, None for that of ``bias``. ``rotary_fraction`` is the default fraction of a
    head that is rotated, None for a class without such a key. ``windows`` all: ``window`` is that
    of all layers; qwen: of the layers that ``use_sliding_window`` selects.
    """

    kv_heads: int | None
    ffn: int = 0
    head_dim: int | None = None
    bias_key: str = ""
    bias: bool = False
    output_bias: bool = True
    output_bias_key: str = ""
    mlp_bias_key: str = ""
    mlp_bias: bool | None = None
    qk_norm: bool = False
    qk_norm_joint: bool = False
    theta: float = THETA
    rotary_fraction: float | None = None
    windows: Literal["none", "all", "qwen"] = "none"
    window: int | None = None
    activation: str = "silu"
    gated: bool = True
    norm: NormKind = "rmsnorm"
    norm_placement: Literal["pre", "after", "sandwich"] = "pre"
    eps_key: str = "rms_norm_eps"
    eps: float = 1e-6
    tied: bool = False


def attention_of(
    config: ConfigKeys, hidden: int, rules: DecoderRules, theta: float | None = None
) -> Attention:
    """Attention of all layers, without windows; ``theta`` where it is read already."""
    heads = config.size("num_attention_heads")
    kv_heads = config.kv_heads(heads, rules.kv_heads)
    head_dim = config.head_dim(hidden, heads, rules.head_dim)
    if head_dim % 2:
        allowed = "an even number (rotary positions)"
        raise InputError(f"{config.where}: head_dim", head_dim, allowed, head_dim + 1)
    bias = config.flag_or(rules.bias_key, rules.bias) if rules.bias_key else rules.bias
    out_bias = bias and rules.output_bias
    if rules.output_bias_key:
        out_bias = config.flag_or(rules.output_bias_key, rules.output_bias)
    rotary_dim = None
    if rules.rotary_fraction is not None:
        fraction = rules.rotary_fraction
        theta, rotary_dim = partial_rope(config, head_dim, fraction, theta=rules.theta)
    elif theta is None:
        theta = rope_theta(config, rules.theta)
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rope_theta=theta,
        rotary_dim=rotary_dim,
        qkv_bias=bias,
        out_bias=out_bias,
        qk_norm=rules.qk_norm,
        qk_norm_joint=rules.qk_norm_joint,
    )


def build(config: ConfigKeys, name: str, rules: DecoderRules) -> ModelSpec:
    """The dense decoder of a configuration, read by ``rules``."""
    hidden = config.size("hidden_size")
    layers = config.layer_count()
    attention = attention_of(config, hidden, rules)
    windows = _windows(config, layers, rules)
    return dense_decoder(config, name, rules, (replace(attention, window=w) for w in windows))


def dense_decoder(
    config: ConfigKeys, name: str, rules: DecoderRules, attentions: Iterable[Attention]
) -> ModelSpec:
    """The decoder around these attentions, one a layer."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    key, mlp_bias = rules.mlp_bias_key, rules.bias if rules.mlp_bias is None else rules.mlp_bias
    mlp = Mlp(
        ffn=config.count_or("intermediate_size", rules.ffn),
        activation=activation(config, "hidden_act", rules.activation, gated=rules.gated),
        bias=config.flag_or(key, mlp_bias) if key else False,
    )
    eps = config.number_or(rules.eps_key, rules.eps)
    blocks = (
        BlockLayer(
            hidden=hidden,
            attention=attention,
            mlp=mlp,
            norm=rules.norm,
            norm_eps=eps,
            norm_placement=rules.norm_placement,
        )
        for attention in attentions
    )
    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=hidden),
        runs_of(blocks),
        norm=rules.norm,
        norm_eps=eps,
        tied=config.flag_or("tie_word_embeddings", rules.tied),
    )


def _windows(config: ConfigKeys, layers: int, rules: DecoderRules) -> list[int | None]:
    if rules.windows == "qwen":
        return qwen_window(config, layers, late=True)
    return [None] * layers if rules.windows == "none" else same_window(config, layers, rules.window)


LLAMA = DecoderRules(ffn=11008, kv_heads=None, bias_key="attention_bias", mlp_bias_key="mlp_bias")
MISTRAL = DecoderRules(ffn=14336, kv_heads=8, windows="all", window=4096)
QWEN2 = DecoderRules(ffn=22016, kv_heads=32, bias=True, output_bias=False, windows="qwen")
QWEN3 = DecoderRules(
    ffn=22016, kv_heads=32, head_dim=128, bias_key="attention_bias", qk_norm=True, windows="qwen"
)
PHI3 = DecoderRules(ffn=8192, kv_heads=None, eps=1e-5, rotary_fraction=1.0, windows="all")
GLM = DecoderRules(
    ffn=13696,
    kv_heads=2,
    head_dim=128,
    bias_key="attention_bias",
    bias=True,
    output_bias=False,
    rotary_fraction=0.5,
    eps=1.5625e-7,
)
STARCODER2 = DecoderRules(
    ffn=12288,
    kv_heads=2,
    bias_key="use_bias",
    bias=True,
    mlp_bias_key="use_bias",
    windows="all",
    activation="gelu_pytorch_tanh",
    gated=False,
    norm="layernorm",
    eps_key="norm_epsilon",
    eps=1e-5,
    tied=True,
)
NEMOTRON = DecoderRules(
    ffn=24576,
    kv_heads=None,
    bias_key="attention_bias",
    mlp_bias_key="mlp_bias",
    rotary_fraction=0.5,
    activation="relu2",
    gated=False,
    norm="layernorm",
    eps_key="norm_eps",
    eps=1e-5,
)
PHI3_DROPOUT = {"attention_dropout": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
STARCODER2_DROPOUT = {
    "attention_dropout": 0.0,
    "residual_dropout": 0.0,
    "embedding_dropout": 0.0,
}


def _family(
    model_type: str,
    config_class: str,
    rules: DecoderRules,
    dropout: Mapping[str, float] = NO_DROPOUT,
) -> Family:
    return Family(
        model_type=model_type,
        config_class=config_class,
        build=partial(build, rules=rules),
        dropout=dropout,
        known=WINDOW_KEYS if rules.windows == "qwen" else (),
    )


FAMILIES = (
    _family("llama", "LlamaConfig", LLAMA),
    _family("mistral", "MistralConfig", MISTRAL),
    _family("qwen2", "Qwen2Config", QWEN2),
    _family("qwen3", "Qwen3Config", QWEN3),
    _family("phi3", "Phi3Config", PHI3, PHI3_DROPOUT),
    _family("glm", "GlmConfig", GLM),
    _family("starcoder2", "Starcoder2Config", STARCODER2, STARCODER2_DROPOUT),
    _family("nemotron", "NemotronConfig", NEMOTRON),
)
