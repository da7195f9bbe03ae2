"""Small models of several towers: an encoder with its decoder, images in a text."""

from __future__ import annotations

from dataclasses import replace

from shardwright.spec.model.layers import (
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    NormLayer,
    PatchLayer,
    ProjectorLayer,
)
from shardwright.spec.model.mixers import Attention
from shardwright.spec.model.model_spec import LayerRun, Mlp, ModelSpec, Tower, TowerEdge

WIDTH, VOCAB = 256, 2048
ATTENTION = Attention(heads=4, kv_heads=4, head_dim=64)
BLOCK = BlockLayer(hidden=WIDTH, attention=ATTENTION, mlp=Mlp(ffn=512))
FULL = replace(BLOCK, attention=replace(ATTENTION, mask="full", rotary=False))
READER = replace(BLOCK, cross_attention=replace(ATTENTION, mask="full", rotary=False))
EMBEDDING = EmbeddingLayer(vocab=VOCAB, hidden=WIDTH)
HEAD = HeadLayer(hidden=WIDTH, vocab=VOCAB)
PATCHES = PatchLayer(hidden=128, image=64, patch=8, class_token=False)
IMAGE_BLOCK = BlockLayer(
    hidden=128,
    attention=Attention(heads=2, kv_heads=2, head_dim=64, mask="full", rotary=False),
    mlp=Mlp(ffn=256, activation="gelu"),
    norm="layernorm",
)


def tower(name: str, *layers: Layer, seq_len: int | None = None) -> Tower:
    """A tower of these layers, one run each."""
    return Tower(name=name, layers=tuple(LayerRun(layer=x) for x in layers), seq_len=seq_len)


def encoder_decoder(encoders: int, decoders: int, tied: bool = True) -> ModelSpec:
    """T5-like: every decoder block reads the encoder; one table for all ends where tied."""
    return ModelSpec(
        name="encoder and decoder",
        towers=(
            tower("encoder", EMBEDDING, *[FULL] * encoders, NormLayer(hidden=WIDTH)),
            tower("decoder", EMBEDDING, *[READER] * decoders, HEAD),
        ),
        edges=(TowerEdge(source="encoder", target="decoder"),),
        tie_embeddings=tied,
        shared_embedding=tied,
    )


def images_in_text(image_blocks: int, blocks: int) -> ModelSpec:
    """LLaVA-like: the tokens of an image stand among those of the text."""
    projector = ProjectorLayer(hidden=128, inner=WIDTH, out=WIDTH, merge=2)
    return ModelSpec(
        name="images in text",
        towers=(
            tower("vision", PATCHES, *[IMAGE_BLOCK] * image_blocks, projector, seq_len=64),
            tower("language", EMBEDDING, *[BLOCK] * blocks, HEAD),
        ),
        edges=(TowerEdge(source="vision", target="language"),),
    )
