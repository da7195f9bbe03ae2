"""ModelSpec from a ``config.json`` of the transformers library, for dense decoders.

Families: gpt2, llama, mistral, qwen2, qwen3. ``num_hidden_layers``, ``hidden_size``,
``num_attention_heads`` and ``vocab_size`` must be there, even where the library has a default,
because a model whose size nobody stated is a mistake. Every other missing key takes the default
of the library's configuration class (transformers 5.23.0) and is listed as an assumption. What
the parameters and the work do not show, dropout and rope scaling, is listed too: it is neither
priced nor run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import InputError, NotBuiltError, nearest_name
from .huggingface_keys import ConfigKeys
from .model import (
    Activation,
    Attention,
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    NormKind,
    Tower,
)
from .report import Assumption

ModelAndAssumptions = tuple[ModelSpec, tuple[Assumption, ...]]
EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")
GELU_NAMES: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
}
SILU_NAMES = ("silu", "swish")
USUAL_GPT2_ATTENTION = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What tells the Llama-like families apart; ``kv_heads`` None means as many as heads.

    ``bias_key`` and ``mlp_bias_key`` say whether the family reads attention_bias and mlp_bias.
    ``window`` is the sliding window of all layers; ``late_window`` says that the last layers
    have one if ``use_sliding_window`` asks for it.
    """

    config_class: str
    ffn: int
    kv_heads: int | None
    head_dim: int | None = None
    bias_key: bool = False
    mlp_bias_key: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    late_window: bool = False


FAMILIES = {
    "llama": Family(
        config_class="LlamaConfig", ffn=11008, kv_heads=None, bias_key=True, mlp_bias_key=True
    ),
    "mistral": Family(config_class="MistralConfig", ffn=14336, kv_heads=8, window=4096),
    "qwen2": Family(
        config_class="Qwen2Config", ffn=22016, kv_heads=32, qkv_bias=True, late_window=True
    ),
    "qwen3": Family(
        config_class="Qwen3Config",
        ffn=22016,
        kv_heads=32,
        head_dim=128,
        bias_key=True,
        qk_norm=True,
        late_window=True,
    ),
}
MODEL_TYPES = ("gpt2", *FAMILIES)


def model_from_config(document: Mapping[str, Any], name: str, where: str) -> ModelAndAssumptions:
    """The model that a configuration describes, and what was assumed of it.

    Args:
        document: the parsed ``config.json``.
        name: what to call the model.
        where: how to name the document in an error, such as its path.

    Raises:
        InputError: a missing, unusable or contradictory key, or an unknown model_type.
        NotBuiltError: a model that is known but not served: experts, quantised weights,
            cross-attention, another activation.
    """
    config = ConfigKeys(document, where, "GPT2Config")
    config.require(("model_type",))
    kind = config.text("model_type")
    _refuse_unbuilt(config)
    if kind == "gpt2":
        model = _gpt2(config, name)
        config.note_dropout("gpt2")
    elif kind in FAMILIES:
        config.config_class = FAMILIES[kind].config_class
        model = _llama_like(config, name, FAMILIES[kind])
        config.note_dropout("llama")
    else:
        allowed = "one of " + ", ".join(MODEL_TYPES)
        near = nearest_name(kind, MODEL_TYPES) or "llama"
        raise InputError(f"{where}: model_type", kind, allowed, near)
    return model, tuple(config.assumptions)


def _refuse_unbuilt(config: ConfigKeys) -> None:
    for key in EXPERT_KEYS:
        if config.document.get(key):
            raise NotBuiltError(f"{config.where}: mixture of experts ({key})", "use a dense model")
    if config.document.get("quantization_config"):
        hint = "use the configuration of the unquantised model"
        raise NotBuiltError(f"{config.where}: quantised weights (quantization_config)", hint)
    for key in ("is_encoder_decoder", "add_cross_attention"):
        if config.document.get(key):
            raise NotBuiltError(f"{config.where}: cross-attention ({key})", "use a decoder")


def _gpt2(config: ConfigKeys, name: str) -> ModelSpec:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    layers, vocab = config.size("num_hidden_layers"), config.size("vocab_size")
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=config.head_dim(hidden, heads),
        rotary=False,
        qkv_bias=True,
        out_bias=True,
    )
    ffn = config.count("n_inner") if config.has("n_inner") else 4 * hidden
    if "n_inner" not in config.document:
        config.assume("n_inner", ffn)
    positions = config.has("n_positions", "max_position_embeddings")
    embedding = EmbeddingLayer(
        vocab=vocab,
        hidden=hidden,
        positions=config.count(positions) if positions else config.count_or("n_positions", 1024),
    )
    eps = config.number_or("layer_norm_epsilon", 1e-5)
    block = BlockLayer(
        hidden=hidden,
        attention=attention,
        mlp=Mlp(ffn=ffn, activation=_gelu(config), bias=True),
        norm="layernorm",
        norm_eps=eps,
    )
    for key, usual in USUAL_GPT2_ATTENTION.items():
        if config.document.get(key, usual) != usual:
            config.assume(key, usual, f"{config.document[key]} is neither priced nor run")
    runs = (LayerRun(layer=block, count=layers),)
    tied = config.flag_or("tie_word_embeddings", True)
    return decoder(name, embedding, runs, norm="layernorm", norm_eps=eps, tied=tied)


def _gelu(config: ConfigKeys) -> Activation:
    given = config.text_or("activation_function", "gelu_new")
    if given not in GELU_NAMES:
        near = nearest_name(given, GELU_NAMES) or "gelu_new"
        raise NotBuiltError(f"{config.where}: activation_function {given}", f"nearest: {near}")
    return GELU_NAMES[given]


def _llama_like(config: ConfigKeys, name: str, family: Family) -> ModelSpec:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    layers, vocab = config.size("num_hidden_layers"), config.size("vocab_size")
    kv_heads = config.kv_heads(heads, family.kv_heads)
    head_dim = config.head_dim(hidden, heads, family.head_dim)
    if head_dim % 2:
        allowed = "an even number (rotary positions)"
        raise InputError(f"{config.where}: head_dim", head_dim, allowed, head_dim + 1)
    activation = config.text_or("hidden_act", "silu")
    if activation not in SILU_NAMES:
        raise NotBuiltError(f"{config.where}: hidden_act {activation}", "nearest: silu")
    bias = config.flag_or("attention_bias", False) if family.bias_key else False
    theta = config.rope_theta()
    mlp = Mlp(
        ffn=config.count_or("intermediate_size", family.ffn),
        bias=config.flag_or("mlp_bias", False) if family.mlp_bias_key else False,
    )
    eps = config.number_or("rms_norm_eps", 1e-6)
    if family.late_window:
        windows = config.partial_window(layers)
    else:
        windows = config.uniform_window(layers, family.window)
    runs = []
    for window, count in windows:
        attention = Attention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            rope_theta=theta,
            qkv_bias=family.qkv_bias or bias,
            out_bias=bias,
            qk_norm=family.qk_norm,
            window=window,
        )
        block = BlockLayer(hidden=hidden, attention=attention, mlp=mlp, norm_eps=eps)
        runs.append(LayerRun(layer=block, count=count))
    tied = config.flag_or("tie_word_embeddings", False)
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden)
    return decoder(name, embedding, tuple(runs), norm="rmsnorm", norm_eps=eps, tied=tied)


def decoder(
    name: str,
    embedding: EmbeddingLayer,
    runs: tuple[LayerRun, ...],
    *,
    norm: NormKind,
    norm_eps: float,
    tied: bool,
) -> ModelSpec:
    """A language model of one tower: embedding, blocks, and a head over the same vocabulary."""
    head = HeadLayer(hidden=embedding.hidden, vocab=embedding.vocab, norm=norm, norm_eps=norm_eps)
    layers = (LayerRun(layer=embedding), *runs, LayerRun(layer=head))
    return ModelSpec(name=name, towers=(Tower(name="decoder", layers=layers),), tie_embeddings=tied)
