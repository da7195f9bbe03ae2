"""MiniMax-01 (arXiv:2501.08313): lightning attention and attention, experts in every block."""

from __future__ import annotations

from ...model.model_spec import (
    BlockLayer,
    EmbeddingLayer,
    LightningAttention,
    Mixer,
    ModelSpec,
    Moe,
)
from ..activations import activation
from ..config_keys import ConfigKeys
from ..decoders import note_multipliers
from ..family import Family, rms_decoder
from ..llama import DecoderRules, attention_of

RULES = DecoderRules(kv_heads=8, theta=1e6)
TYPES = ("full_attention", "linear_attention")
MULTIPLIERS = tuple(
    f"{part}_{factor}_factor"
    for part in ("full_attn", "linear_attn", "mlp")
    for factor in ("alpha", "beta")
)


def minimax(config: ConfigKeys, name: str) -> ModelSpec:
    """MiniMax-Text-01: the residual stream itself is normed before each part."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    layers = config.layer_count()
    types = config.choices("layer_types", layers, TYPES)
    if types is None:
        config.assume("layer_types", "attention on every second layer, from the first")
        types = [TYPES[i % 2] for i in range(layers)]
    if config.has("sliding_window"):
        raise config.refuse("sliding_window", "leave it out")
    note_multipliers(config, MULTIPLIERS)
    attention = attention_of(config, hidden, RULES)
    activation(config, "hidden_act", "silu", gated=True)
    mixers: dict[str, Mixer] = {"full_attention": attention}
    if "linear_attention" in types:
        chunk = config.count_or("block_size", 256)
        mixers["linear_attention"] = LightningAttention(
            heads=attention.heads, head_dim=attention.head_dim, chunk=chunk
        )
    moe = Moe(
        experts=config.count_or(config.has("num_experts") or "num_local_experts", 8),
        topk=config.count_or("num_experts_per_tok", 2),
        ffn=config.count_or("intermediate_size", 14336),
    )
    eps = config.number_or("rms_norm_eps", 1e-5)
    blocks = (
        BlockLayer(
            hidden=hidden, attention=mixers[kind], mlp=moe, norm_eps=eps, norm_placement="stream"
        )
        for kind in types
    )
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden)
    return rms_decoder(config, name, embedding, blocks, eps)


FAMILIES = (
    Family(
        model_type="minimax",
        config_class="MiniMaxConfig",
        build=minimax,
        experts=True,
        known=("block_size",),
    ),
)
