"""LLaVA (arXiv:2304.08485): a CLIP vision tower, a projector, and a Llama-like decoder."""

from __future__ import annotations

from dataclasses import replace

from ...errors import NotBuiltError
from ...model.model_spec import LayerRun, ModelSpec, NormLayer, ProjectorLayer, Tower, TowerEdge
from ..activations import activation
from ..config_keys import ConfigKeys
from ..encoders import encoder_block, patch_layer
from ..family import Family, runs_of
from ..llama import FAMILIES as LLAMA_LIKE

TEXT = {family.model_type: family for family in LLAMA_LIKE}


def llava(config: ConfigKeys, name: str) -> ModelSpec:
    """LLaVA: vision tokens, without class token, inserted in the decoder's."""
    vision = config.part("vision_config", "CLIPVisionConfig")
    if vision.text_or("model_type", "clip_vision_model") != "clip_vision_model":
        raise vision.refuse("model_type", "nearest: clip_vision_model")
    vision.known("vocab_size")  # of the whole CLIP
    text_config = config.part("text_config", "LlamaConfig")
    model_type = text_config.text_or("model_type", "llama")
    if model_type not in TEXT:
        raise NotBuiltError(f"{text_config.where}: model_type {model_type}", "nearest: llama")
    text_config.config_class = TEXT[model_type].config_class
    text_config.known(*TEXT[model_type].known)
    language = TEXT[model_type].build(text_config, name)
    text = replace(language.towers[0], name="language")
    hidden = language.towers[0].layers[0].layer.hidden
    tied = config.flag_or("tie_word_embeddings", False) or language.tie_embeddings
    config.assume(
        "vision_feature_layer",
        config.document.get("vision_feature_layer", -2),
        "the class runs the vision tower to its end; layers above the one that is read, and the "
        "norm, are priced as if they were used",
    )
    return ModelSpec(
        name=name,
        towers=(_vision_tower(config, vision, hidden), text),
        edges=(TowerEdge(source="vision", target="language"),),
        tie_embeddings=tied,
    )


def _vision_tower(config: ConfigKeys, vision: ConfigKeys, out: int) -> Tower:
    """CLIP's encoder (arXiv:2103.00020): norms before the first block and after the last."""
    hidden, layers = vision.size("hidden_size"), vision.layer_count()
    patches = patch_layer(vision, hidden, image=224, patch=32, bias=False, norm="layernorm")
    eps = vision.number_or("layer_norm_eps", 1e-5)
    mlp_activation = activation(vision, "hidden_act", "quick_gelu", gated=False)
    block = encoder_block(vision, hidden, mlp_activation, eps)
    activation(config, "projector_hidden_act", "gelu", gated=False)
    feature = config.document.get("vision_feature_layer", -2)
    width = len(feature) if isinstance(feature, list) else 1
    if width != 1:
        raise config.refuse("vision_feature_layer", "use one layer")
    projector = ProjectorLayer(
        hidden=hidden,
        inner=out,
        out=out,
        bias=config.flag_or("multimodal_projector_bias", True),
    )
    runs = (
        LayerRun(layer=patches),
        *runs_of([block] * layers),
        LayerRun(layer=NormLayer(hidden=hidden, norm="layernorm", norm_eps=eps)),
        LayerRun(layer=projector),
    )
    return Tower(name="vision", layers=runs, seq_len=patches.tokens)


FAMILIES = (Family(model_type="llava", config_class="LlavaConfig", build=llava, dropout={}),)
