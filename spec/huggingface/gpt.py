"""GPT families with biases in their blocks: gpt2, opt, gpt_neox."""

from __future__ import annotations

from dataclasses import replace

from ..model.model_spec import Attention, BlockLayer, EmbeddingLayer, Mlp, ModelSpec
from .activations import activation
from .config_keys import ConfigKeys
from .family import Family, decoder, runs_of
from .positions import partial_rope

USUAL_GPT2_ATTENTION = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
}
OPT_POSITION_OFFSET = 2
"""Rows of OPT's position table before that of the first token."""


def gpt2(config: ConfigKeys, name: str) -> ModelSpec:
    """GPT-2: learned positions, biases everywhere."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    layers, vocab = config.layer_count(), config.size("vocab_size")
    attention = _attention(config, hidden, heads, rotary=False)
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
    mlp_activation = activation(config, "activation_function", "gelu_new", gated=False)
    block = BlockLayer(
        hidden=hidden,
        attention=attention,
        mlp=Mlp(ffn=ffn, activation=mlp_activation, bias=True),
        norm="layernorm",
        norm_eps=eps,
    )
    for key, usual in USUAL_GPT2_ATTENTION.items():
        if config.document.get(key, usual) != usual:
            config.assume(key, usual, f"{config.document[key]} is neither priced nor run")
    tied = config.flag_or("tie_word_embeddings", True)
    runs = runs_of([block] * layers)
    return decoder(name, embedding, runs, norm="layernorm", norm_eps=eps, tied=tied)


def _attention(
    config: ConfigKeys, hidden: int, heads: int, *, rotary: bool, bias: bool = True
) -> Attention:
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=config.head_dim(hidden, heads),
        rotary=rotary,
        qkv_bias=bias,
        out_bias=bias,
    )


def opt(config: ConfigKeys, name: str) -> ModelSpec:
    """OPT (arXiv:2205.01068): GPT-2 with ReLU; one size is post-norm."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    layers, vocab = config.layer_count(), config.size("vocab_size")
    if config.has("word_embed_proj_dim") and config.count("word_embed_proj_dim") != hidden:
        raise config.refuse("word_embed_proj_dim", f"use the hidden size {hidden}")
    if not config.flag_or("layer_norm_elementwise_affine", True):
        raise config.refuse("layer_norm_elementwise_affine", "use true")
    bias = config.flag_or("enable_bias", True)
    norm_before = config.flag_or("do_layer_norm_before", True)
    final_norm = norm_before and not config.document.get("_remove_final_layer_norm", False)
    mlp_activation = activation(config, "activation_function", "relu", gated=False)
    block = BlockLayer(
        hidden=hidden,
        attention=_attention(config, hidden, heads, rotary=False, bias=bias),
        mlp=Mlp(ffn=config.count_or("ffn_dim", 3072), activation=mlp_activation, bias=bias),
        norm="layernorm",
        norm_placement="pre" if norm_before else "post",
    )
    positions = config.count_or("max_position_embeddings", 2048)
    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=hidden, positions=positions + OPT_POSITION_OFFSET),
        runs_of([block] * layers),
        norm="layernorm" if final_norm else None,
        norm_eps=block.norm_eps,
        tied=config.flag_or("tie_word_embeddings", True),
    )


def gpt_neox(config: ConfigKeys, name: str) -> ModelSpec:
    """GPT-NeoX (arXiv:2204.06745): parallel attention and MLP, partial rotary embeddings."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    layers, vocab = config.layer_count(), config.size("vocab_size")
    bias = config.flag_or("attention_bias", True)
    attention = _attention(config, hidden, heads, rotary=True, bias=bias)
    theta, rotary_dim = partial_rope(
        config, attention.head_dim, 0.25, theta_key="rotary_emb_base", fraction_key="rotary_pct"
    )
    eps = config.number_or("layer_norm_eps", 1e-5)
    mlp_activation = activation(config, "hidden_act", "gelu", gated=False)
    block = BlockLayer(
        hidden=hidden,
        attention=replace(attention, rope_theta=theta, rotary_dim=rotary_dim),
        mlp=Mlp(
            ffn=config.count_or("intermediate_size", 24576), activation=mlp_activation, bias=True
        ),
        norm="layernorm",
        norm_eps=eps,
        parallel=config.flag_or("use_parallel_residual", True),
    )
    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=hidden),
        runs_of([block] * layers),
        norm="layernorm",
        norm_eps=eps,
        tied=config.flag_or("tie_word_embeddings", False),
    )


GPT2_NAMES = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}
FAMILIES = (
    Family(
        model_type="gpt2",
        config_class="GPT2Config",
        build=gpt2,
        names=GPT2_NAMES,
        dropout={"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    ),
    Family(
        model_type="opt",
        config_class="OPTConfig",
        build=opt,
        dropout={"dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0},
    ),
    Family(
        model_type="gpt_neox",
        config_class="GPTNeoXConfig",
        build=gpt_neox,
        dropout={"attention_dropout": 0.0, "hidden_dropout": 0.0},
    ),
)
