"""T5 and T5 1.1 (arXiv:1910.10683, 2002.05202): an encoder, a decoder, one embedding."""

from __future__ import annotations

from dataclasses import replace

from ..model.model_spec import (
    MAX_LAYERS,
    Attention,
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    NormLayer,
    Tower,
    TowerEdge,
)
from .activations import named_activation
from .config_keys import ConfigKeys
from .family import Family

NAMES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}


def t5(config: ConfigKeys, name: str) -> ModelSpec:
    """T5: two towers.

    The first block of each holds its table of relative positions.
    """
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    layers = config.layer_count()
    decoder_key = "num_decoder_layers"
    decoders = config.count(decoder_key, most=MAX_LAYERS) if config.has(decoder_key) else layers
    heads = config.size("num_attention_heads")
    key = config.has("head_dim", "d_kv") or "d_kv"
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=config.count_or(key, 64),
        rotary=False,
        mask="full",
        relative_buckets=config.count_or("relative_attention_num_buckets", 32),
    )
    eps = config.number_or("layer_norm_epsilon", 1e-6)
    block = BlockLayer(hidden=hidden, attention=attention, mlp=_mlp(config), norm_eps=eps)
    cross = replace(attention, relative_buckets=0)
    decoder_block = replace(
        block, attention=replace(attention, mask="causal"), cross_attention=cross
    )
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden)
    last_layers = (
        NormLayer(hidden=hidden, norm_eps=eps),
        HeadLayer(hidden=hidden, vocab=vocab, norm_eps=eps),
    )
    towers = tuple(
        Tower(
            name=title,
            layers=(LayerRun(layer=embedding), *_stack(first, count), LayerRun(layer=end)),
        )
        for title, first, count, end in (
            ("encoder", block, layers, last_layers[0]),
            ("decoder", decoder_block, decoders, last_layers[1]),
        )
    )
    return ModelSpec(
        name=name,
        towers=towers,
        edges=(TowerEdge(source="encoder", target="decoder"),),
        tie_embeddings=True,  # the class ties them whatever tie_word_embeddings says
        shared_embedding=True,
    )


def _stack(first: BlockLayer, count: int) -> tuple[LayerRun, ...]:
    if not isinstance(first.attention, Attention):
        raise TypeError("a T5 block has attention")
    later = replace(first.attention, relative_buckets=0, shared_bias=True)
    other_blocks = replace(first, attention=later)
    runs = (LayerRun(layer=first), LayerRun(layer=other_blocks, count=max(1, count - 1)))
    return runs if count > 1 else runs[:1]


def _mlp(config: ConfigKeys) -> Mlp:
    key = "feed_forward_proj"
    projection = config.text_or(key, "relu")
    gate, _, name = projection.rpartition("-")
    if gate not in ("", "gated"):
        raise config.refuse(key, "nearest: relu, gated-gelu")
    activation_name = "gelu_new" if projection == "gated-gelu" else name  # as the class reads it
    return Mlp(
        ffn=config.count_or("d_ff", 2048),
        activation=named_activation(config, key, activation_name, gated=bool(gate)),
    )


FAMILIES = (
    Family(
        model_type="t5",
        config_class="T5Config",
        build=t5,
        names=NAMES,
        dropout={"dropout_rate": 0.1},
        encoder_decoder=True,
        known=("scale_decoder_outputs", "tie_word_embeddings", "n_positions"),
    ),
)
