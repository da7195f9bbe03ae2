"""Every ``model_type`` that is read."""

from __future__ import annotations

from . import (
    decoders,
    deepseek,
    encoders,
    gemma,
    gemma4,
    gpt,
    granite_moe,
    hybrids,
    later_moe,
    llama,
    moe,
    shared_experts,
    t5,
)
from .family import Family
from .images import gemma3, llava, mistral3, qwen_vl
from .recurrent import bamba, falcon_h1, kimi_linear, lfm2, minimax

FAMILIES: tuple[Family, ...] = (
    *gpt.FAMILIES,
    *llama.FAMILIES,
    *decoders.FAMILIES,
    *gemma.FAMILIES,
    *gemma4.FAMILIES,
    *moe.FAMILIES,
    *later_moe.FAMILIES,
    *shared_experts.FAMILIES,
    *granite_moe.FAMILIES,
    *deepseek.FAMILIES,
    *hybrids.FAMILIES,
    *lfm2.FAMILIES,
    *bamba.FAMILIES,
    *falcon_h1.FAMILIES,
    *minimax.FAMILIES,
    *kimi_linear.FAMILIES,
    *encoders.FAMILIES,
    *t5.FAMILIES,
    *llava.FAMILIES,
    *qwen_vl.FAMILIES,
    *gemma3.FAMILIES,
    *mistral3.FAMILIES,
)
