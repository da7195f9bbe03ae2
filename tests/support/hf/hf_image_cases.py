"""Small configurations of the library's image models: vision blocks and projectors."""

from __future__ import annotations

from typing import Any

from hf.hf_case import VOCAB, BlockCase

TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 80,
    "head_dim": 12,
    "pad_token_id": None,
}
QWEN = {"depth": 2, "num_heads": 4, "patch_size": 4, "image_size": 32}
QWEN2_VL = QWEN | {"embed_dim": 64, "hidden_size": 48, "mlp_ratio": 3}
QWEN2_5_VL = QWEN | {
    "hidden_size": 64,
    "intermediate_size": 160,
    "out_hidden_size": 48,
    "window_size": 16,
    "fullatt_block_indexes": [1],
}
QWEN3_VL = QWEN | {
    "hidden_size": 64,
    "intermediate_size": 160,
    "out_hidden_size": 48,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
}
TOWER = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "intermediate_size": 160,
    "image_size": 32,
    "patch_size": 4,
}
SIGLIP = TOWER | {"model_type": "siglip_vision_model", "vision_use_head": False}
PIXTRAL = TOWER | {"model_type": "pixtral", "hidden_act": "silu"}
GRID = 8
"""Patches of a side: 32 pixels, 4 a patch."""
PATCHES = GRID * GRID
PACKED = {"inputs": ("hidden_states", "grid_thw"), "tower": "visual"}


def _sizes(vision: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
    return {"vision_config": vision, "text_config": {"model_type": text, **TEXT}, **more}


def _case(name: str, config: str, vision: dict[str, Any], text: str, **fields: Any) -> BlockCase:
    return BlockCase(
        name=name, config=config, sizes=_sizes(vision, text), seq_len=PATCHES, **fields
    )


GEMMA3 = _sizes(SIGLIP, "gemma3_text", mm_tokens_per_image=16)
IMAGE_CASES = [
    _case(
        "qwen2_vl_vision",
        "Qwen2VLConfig",
        QWEN2_VL,
        "qwen2_vl_text",
        part="visual.blocks.0",
        **PACKED,
    ),
    _case(
        "qwen2_5_vl_windows",
        "Qwen2_5_VLConfig",
        QWEN2_5_VL,
        "qwen2_5_vl_text",
        part="visual.blocks.0",
        **PACKED,
    ),
    _case(
        "qwen2_5_vl_whole",
        "Qwen2_5_VLConfig",
        QWEN2_5_VL,
        "qwen2_5_vl_text",
        part="visual.blocks.1",
        block=1,
        **PACKED,
    ),
    _case(
        "qwen3_vl_vision",
        "Qwen3VLConfig",
        QWEN3_VL,
        "qwen3_vl_text",
        part="visual.blocks.0",
        **PACKED,
    ),
    BlockCase(
        name="siglip",
        config="Gemma3Config",
        part="vision_tower.encoder.layers.0",
        sizes=GEMMA3,
        seq_len=PATCHES,
        inputs=("pixel_values",),
        tower="vision_tower",
    ),
    _case(
        "pixtral",
        "Mistral3Config",
        PIXTRAL,
        "mistral",
        part="vision_tower.transformer.layers.0",
        inputs=("pixel_values", "image_sizes"),
        tower="vision_tower",
        batch=1,
    ),
]
IMAGE_ENDS = [
    _case(
        "qwen3_vl_mergers",
        "Qwen3VLConfig",
        QWEN3_VL,
        "qwen3_vl_text",
        part="Qwen3VLForConditionalGeneration",
        kind="projector",
    ),
    _case(
        "qwen2_5_vl_merger",
        "Qwen2_5_VLConfig",
        QWEN2_5_VL,
        "qwen2_5_vl_text",
        part="Qwen2_5_VLForConditionalGeneration",
        kind="projector",
    ),
    BlockCase(
        name="gemma3_projector",
        config="Gemma3Config",
        part="Gemma3ForConditionalGeneration",
        sizes=GEMMA3,
        seq_len=PATCHES,
        kind="projector",
    ),
    _case(
        "mistral3_projector",
        "Mistral3Config",
        PIXTRAL,
        "mistral",
        part="Mistral3ForConditionalGeneration",
        kind="projector",
    ),
]
