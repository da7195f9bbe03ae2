"""Mistral 3 with images: Pixtral's encoder (arXiv:2410.07073), merged patches, a decoder."""

from __future__ import annotations

from ...model.model_spec import (
    Attention,
    BlockLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    PatchLayer,
    ProjectorLayer,
    Tower,
)
from ..activations import activation
from ..config_keys import ConfigKeys
from ..decoders import FAMILIES as LATER
from ..family import Family, runs_of
from ..llama import FAMILIES as LLAMA_LIKE
from .towers import image_side, joined, read_language

TEXTS = {family.model_type: family for family in (*LLAMA_LIKE, *LATER)}
PIXTRAL, PIXTRAL_EPS = "pixtral", 1e-5
LARGEST = "the largest image; smaller ones have fewer tokens"


def mistral3(config: ConfigKeys, name: str) -> ModelSpec:
    """Mistral Small 3.1 and Ministral 3: blocks of patches become one token each."""
    vision = config.part("vision_config", "PixtralVisionConfig")
    if vision.text_or("model_type", PIXTRAL) != PIXTRAL:
        raise vision.refuse("model_type", f"nearest: {PIXTRAL}")
    vision.known("vocab_size")
    language = read_language(config, name, TEXTS, "mistral")
    feature = config.document.get("vision_feature_layer", -1)
    if isinstance(feature, list) and len(feature) != 1:
        raise config.refuse("vision_feature_layer", "use one layer")
    tower = _vision_tower(config, vision, language.towers[0].layers[0].layer.hidden)
    return joined(name, tower, language, tied=config.flag_or("tie_word_embeddings", True))


def _vision_tower(config: ConfigKeys, vision: ConfigKeys, out: int) -> Tower:
    hidden, layers = vision.size("hidden_size"), vision.layer_count()
    patch, side = vision.count_or("patch_size", 16), config.count_or("spatial_merge_size", 2)
    if vision.has("image_size"):
        vision.assume("image_size", vision.document["image_size"], LARGEST)
    patches = PatchLayer(
        hidden=hidden,
        image=image_side(vision, patch * side, 1024 // (patch * side) * patch * side),
        patch=patch,
        channels=vision.count_or("num_channels", 3),
        class_token=False,
        positions=False,
        bias=False,
        norm="rmsnorm",
    )
    heads = vision.size("num_attention_heads")
    block = BlockLayer(
        hidden=hidden,
        attention=Attention(
            heads=heads, kv_heads=heads, head_dim=vision.head_dim(hidden, heads), mask="full"
        ),
        mlp=Mlp(
            ffn=vision.count_or("intermediate_size", 4096),
            activation=activation(vision, "hidden_act", "gelu", gated=True),
        ),
        norm_eps=PIXTRAL_EPS,
    )
    activation(config, "projector_hidden_act", "gelu", gated=False)
    projector = ProjectorLayer(
        hidden=hidden,
        inner=out,
        out=out,
        merge=side**2,
        norm="rmsnorm",
        bias=config.flag_or("multimodal_projector_bias", False),
        merged=hidden,
    )
    runs = (LayerRun(layer=patches), *runs_of([block] * layers), LayerRun(layer=projector))
    return Tower(name="vision", layers=runs, seq_len=patches.tokens)


FAMILIES = (
    Family(
        model_type="mistral3",
        config_class="Mistral3Config",
        build=mistral3,
        dropout={},
    ),
)
