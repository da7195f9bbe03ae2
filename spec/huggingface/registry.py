"""Every ``model_type`` that is read, and known ones that are refused."""

from __future__ import annotations

from . import (
    decoders,
    deepseek,
    encoders,
    gemma,
    gpt,
    granite_moe,
    hybrids,
    later_moe,
    llama,
    llava,
    moe,
    shared_experts,
    t5,
)
from .family import Family
from .recurrent import falcon_h1, lfm2

FAMILIES: tuple[Family, ...] = (
    *gpt.FAMILIES,
    *llama.FAMILIES,
    *decoders.FAMILIES,
    *gemma.FAMILIES,
    *moe.FAMILIES,
    *later_moe.FAMILIES,
    *shared_experts.FAMILIES,
    *granite_moe.FAMILIES,
    *deepseek.FAMILIES,
    *hybrids.FAMILIES,
    *lfm2.FAMILIES,
    *falcon_h1.FAMILIES,
    *encoders.FAMILIES,
    *t5.FAMILIES,
    *llava.FAMILIES,
)
REFUSED = {
    "gemma3": ("an image tower with pooled tokens", "gemma3_text, its text_config"),
    "gemma3n": ("alternating updates and embeddings of each layer", "gemma3_text"),
    "gpt_bigcode": ("multi-query attention beside learned positions", "starcoder2"),
    "gptj": ("one norm before both parts and a bias on the head", "gpt_neox"),
    "falcon": ("three arrangements of norms and heads under one name", "gpt_neox"),
    "bloom": ("ALiBi positions", "opt"),
    "mpt": ("ALiBi positions", "opt"),
    "mamba": ("the selective scan of the first Mamba", "mamba2"),
    "jamba": ("the selective scan of the first Mamba", "nemotron_h"),
    "llama4": ("chunked attention and experts in place of layers", "mixtral"),
    "deepseek_v32": ("attention to tokens that an indexer picks", "deepseek_v3"),
    "deepseek_v4": ("compressed attention and hyper-connections", "deepseek_v3"),
    "kimi_linear": ("Kimi delta attention", "qwen3_next"),
    "qwen3_5_moe": ("an image tower", "qwen3_5_moe_text, its text_config"),
    "roberta": ("positions that start behind the padding", "bert"),
    "electra": ("a generator beside a discriminator", "bert"),
    "deberta": ("disentangled attention", "bert"),
    "clip": ("a contrastive loss between two towers", "llava"),
    "whisper": ("convolutions over sound", "t5"),
    "bart": ("learned positions in both towers", "t5"),
    "qwen2_vl": ("images of any size", "llava"),
    "qwen2_5_vl": ("images of any size", "llava"),
}
"""``model_type`` → its feature that is not built, and the nearest type that is read."""
