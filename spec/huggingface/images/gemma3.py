"""Gemma 3 with images (arXiv:2503.19786): SigLIP, pooled tokens, Gemma 3's decoder."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from ...model.model_spec import LayerRun, ModelSpec, NormLayer, ProjectorLayer, Tower
from ..activations import activation
from ..config_keys import ConfigKeys
from ..encoders import encoder_block, patch_layer
from ..family import Family, runs_of
from ..gemma import FAMILIES as GEMMA
from .towers import joined, read_language

TEXTS = {family.model_type: family for family in GEMMA if family.model_type == "gemma3_text"}
LEFT_OUT = {"vocab_size": 262208, "num_attention_heads": 8}
"""Sizes of 4B that its published configuration leaves to the class."""
SIGLIP = "siglip_vision_model"


def gemma3(config: ConfigKeys, name: str) -> ModelSpec:
    """Gemma 3 from 4B up: an image is 256 tokens, whatever the number of its patches."""
    vision = config.part("vision_config", "SiglipVisionConfig")
    if vision.text_or("model_type", SIGLIP) != SIGLIP:
        raise vision.refuse("model_type", f"nearest: {SIGLIP}")
    if vision.flag_or("vision_use_head", True):
        raise vision.refuse(
            "vision_use_head", "use false: Gemma reads all tokens, not a pooled one"
        )
    language = read_language(config, name, TEXTS, "gemma3_text", LEFT_OUT)
    config.assume(
        "attention_mask", "causal", "an image's tokens see all of it; priced and run as text"
    )
    tower = _vision_tower(config, vision, language.hidden)
    return joined(name, tower, language, tied=config.flag_or("tie_word_embeddings", True))


def _vision_tower(config: ConfigKeys, vision: ConfigKeys, out: int) -> Tower:
    hidden, layers = vision.size("hidden_size"), vision.layer_count()
    patches = patch_layer(vision, hidden, image=224, patch=16, bias=True)
    patches = replace(patches, class_token=False)
    eps = vision.number_or("layer_norm_eps", 1e-6)
    kind = activation(vision, "hidden_act", "gelu_pytorch_tanh", gated=False)
    block = encoder_block(vision, hidden, kind, eps)
    tokens = config.count_or("mm_tokens_per_image", 256)
    side, side_tokens = isqrt(patches.tokens), isqrt(tokens)
    if side_tokens**2 != tokens or side % side_tokens:
        allowed = f"the square of a divisor of the {side} patches of a side"
        raise config.error("mm_tokens_per_image", allowed)
    projector = ProjectorLayer(
        hidden=hidden,
        inner=0,
        out=out,
        norm="rmsnorm",
        norm_eps=eps,
        bias=False,
        pool=patches.tokens // tokens,
    )
    runs = (
        LayerRun(layer=patches),
        *runs_of([block] * layers),
        LayerRun(layer=NormLayer(hidden=hidden, norm="layernorm", norm_eps=eps)),
        LayerRun(layer=projector),
    )
    return Tower(name="vision", layers=runs, seq_len=patches.tokens)


FAMILIES = (
    Family(
        model_type="gemma3",
        config_class="Gemma3Config",
        build=gemma3,
        dropout={},
    ),
)
