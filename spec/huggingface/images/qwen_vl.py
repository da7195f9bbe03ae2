"""Qwen's models of images: qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_5, and those with experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import InputError
from ...model.model_spec import (
    Attention,
    BlockLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    NormKind,
    PatchLayer,
    ProjectorLayer,
    Tower,
)
from ..activations import activation
from ..config_keys import ConfigKeys
from ..family import WINDOW_KEYS, Family, runs_of
from ..hybrids import qwen3_5, qwen3_5_moe
from ..llama import QWEN2, DecoderRules, build
from ..moe import Qwen3MoeDefaults, qwen3_moe
from .towers import image_side, joined, read_language

NAMES = {"num_attention_heads": "num_heads", "num_hidden_layers": "depth"}
VISION_EPS = 1e-6
DEFAULT_IMAGE = 448
"""Sixteen patches of 28 pixels a side: 256 tokens."""
OLD_KEYS = ("in_chans", "spatial_patch_size", "tokens_per_second", "fullatt_block_indexes")


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionRules:
    """Differences between the families.

    ``text_ties``: a tie that ``text_config`` alone states holds.
    """

    patch: int
    hidden: str = "hidden_size"
    out: str = "out_hidden_size"
    activation: str = "gelu_pytorch_tanh"
    norm: NormKind = "layernorm"
    bias: bool = True
    gated: bool = False
    windows: bool = False
    positions: bool = False
    deepstack: bool = False
    text_ties: bool = False


def _image_model(
    config: ConfigKeys, name: str, rules: VisionRules, text: dict[str, Family]
) -> ModelSpec:
    vision = config.part("vision_config", f"{config.config_class}'s vision_config")
    vision.names = NAMES
    language = read_language(config, name, text, next(iter(text)))
    tower = _vision_tower(vision, rules)
    key = "tie_word_embeddings"
    tied = config.flag(key) if config.has(key) else False
    tied = tied or (rules.text_ties and language.tie_embeddings)
    return joined(name, tower, language, tied=tied)


def _vision_tower(vision: ConfigKeys, rules: VisionRules) -> Tower:
    """Patches of two frames each, blocks that see one image, neighbors merged by an MLP."""
    vision.known("model_type", *OLD_KEYS)
    hidden, layers = vision.size(rules.hidden), vision.layer_count()
    patch = vision.count_or("patch_size", rules.patch)
    side_merge = vision.count_or("spatial_merge_size", 2)
    step = patch * side_merge
    patches = PatchLayer(
        hidden=hidden,
        image=image_side(vision, step, DEFAULT_IMAGE // step * step),
        patch=patch,
        channels=vision.count_or("in_channels", 3),
        frames=vision.count_or("temporal_patch_size", 2),
        class_token=False,
        positions=rules.positions,
        bias=rules.bias,
        position_rows=vision.count_or("num_position_embeddings", 2304) if rules.positions else None,
    )
    block = _vision_block(vision, hidden, rules)
    chunks = _window_chunks(vision, layers, patch, side_merge) if rules.windows else [None] * layers
    merger = ProjectorLayer(
        hidden=hidden,
        inner=hidden * side_merge**2,
        out=vision.size(rules.out),
        merge=side_merge**2,
        norm=rules.norm,
        norm_eps=VISION_EPS,
        further=_deepstack(vision, layers) if rules.deepstack else 0,
    )
    blocks = [
        replace(block, attention=replace(_attention(vision, hidden), chunk=c)) for c in chunks
    ]
    runs = (LayerRun(layer=patches), *runs_of(blocks), LayerRun(layer=merger))
    return Tower(name="vision", layers=runs, seq_len=patches.tokens)


def _attention(vision: ConfigKeys, hidden: int) -> Attention:
    heads = vision.size("num_attention_heads")
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=vision.head_dim(hidden, heads),
        qkv_bias=True,
        out_bias=True,
        mask="full",
    )


def _vision_block(vision: ConfigKeys, hidden: int, rules: VisionRules) -> BlockLayer:
    if rules.out == "hidden_size":  # Qwen2-VL gives its width as embed_dim
        ffn = hidden * vision.count_or("mlp_ratio", 4)
    else:
        ffn = vision.size("intermediate_size")
    kind = activation(vision, "hidden_act", rules.activation, gated=rules.gated)
    return BlockLayer(
        hidden=hidden,
        attention=None,
        mlp=Mlp(ffn=ffn, activation=kind, bias=True),
        norm=rules.norm,
        norm_eps=VISION_EPS,
    )


def _window_chunks(vision: ConfigKeys, layers: int, patch: int, merge: int) -> list[int | None]:
    """Patches of a window; None on the layers that see the whole image."""
    window = vision.count_or("window_size", 112)
    side = window // merge // patch * merge
    if not side:
        raise InputError(f"{vision.where}: window_size", window, f"at least {merge * patch}")
    full = _layer_numbers(vision, "fullatt_block_indexes", (7, 15, 23, 31))
    return [None if i in full else side * side for i in range(layers)]


def _deepstack(vision: ConfigKeys, layers: int) -> int:
    key = "deepstack_visual_indexes"
    levels = _layer_numbers(vision, key, (8, 16, 24))
    if levels:
        why = (
            "features of earlier blocks are priced as if they joined at the language's first layer"
        )
        vision.assume(key, list(levels), why)
    return len([level for level in levels if level < layers])


def _layer_numbers(vision: ConfigKeys, key: str, default: tuple[int, ...]) -> Sequence[int]:
    given: Any = vision.document.get(key)
    if given is None:
        vision.assume(key, list(default))
        return default
    if not isinstance(given, (list, tuple)) or not all(type(x) is int for x in given):
        raise vision.error(key, "a list of layer numbers")
    return tuple(given)


QWEN2_VL = VisionRules(
    patch=14,
    hidden="embed_dim",
    out="hidden_size",
    activation="quick_gelu",
    bias=False,
    text_ties=True,
)
QWEN2_5_VL = VisionRules(
    patch=14,
    activation="silu",
    norm="rmsnorm",
    bias=False,
    gated=True,
    windows=True,
    text_ties=True,
)
QWEN3_VL = VisionRules(patch=16, positions=True, deepstack=True)
QWEN3_5 = VisionRules(patch=16, positions=True)
QWEN2_TEXT = replace(QWEN2, ffn=29568, kv_heads=8, theta=1e6, eps=1e-5)
QWEN3_TEXT = DecoderRules(
    ffn=22016,
    kv_heads=32,
    head_dim=128,
    bias_key="attention_bias",
    qk_norm=True,
    theta=500000.0,
)


def _text(model_type: str, config_class: str, read: Any, **fields: Any) -> Family:
    builder = partial(build, rules=read) if isinstance(read, DecoderRules) else read
    return Family(model_type=model_type, config_class=config_class, build=builder, **fields)


QWEN3_VL_MOE = Qwen3MoeDefaults(
    kv_heads=16, experts=60, topk=4, ffn=1408, dense_ffn=5632, theta=500000.0
)
LINEAR_KNOWN = ("full_attention_interval", "intermediate_size")
TEXTS = {
    "qwen2_vl": _text("qwen2_vl_text", "Qwen2VLTextConfig", QWEN2_TEXT, known=WINDOW_KEYS),
    "qwen2_5_vl": _text("qwen2_5_vl_text", "Qwen2_5_VLTextConfig", QWEN2_TEXT, known=WINDOW_KEYS),
    "qwen3_vl": _text("qwen3_vl_text", "Qwen3VLTextConfig", QWEN3_TEXT),
    "qwen3_vl_moe": _text(
        "qwen3_vl_moe_text",
        "Qwen3VLMoeTextConfig",
        partial(qwen3_moe, defaults=QWEN3_VL_MOE),
        known=(*WINDOW_KEYS, "intermediate_size"),
    ),
    "qwen3_5": _text("qwen3_5_text", "Qwen3_5TextConfig", qwen3_5, known=LINEAR_KNOWN),
    "qwen3_5_moe": _text(
        "qwen3_5_moe_text", "Qwen3_5MoeTextConfig", qwen3_5_moe, known=LINEAR_KNOWN
    ),
}
"""Text families by the image family that has them."""


def _family(model_type: str, config_class: str, rules: VisionRules, **fields: Any) -> Family:
    text = TEXTS[model_type]
    reader = partial(_image_model, rules=rules, text={text.model_type: text, model_type: text})
    return Family(
        model_type=model_type, config_class=config_class, build=reader, dropout={}, **fields
    )


FAMILIES = (
    _family("qwen2_vl", "Qwen2VLConfig", QWEN2_VL, known=WINDOW_KEYS),
    _family("qwen2_5_vl", "Qwen2_5_VLConfig", QWEN2_5_VL, known=WINDOW_KEYS),
    _family("qwen3_vl", "Qwen3VLConfig", QWEN3_VL),
    _family("qwen3_vl_moe", "Qwen3VLMoeConfig", QWEN3_VL, experts=True),
    _family("qwen3_5", "Qwen3_5Config", QWEN3_5),
    _family("qwen3_5_moe", "Qwen3_5MoeConfig", QWEN3_5, experts=True),
    TEXTS["qwen3_5"],
)
