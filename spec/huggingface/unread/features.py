"""Features that an unread configuration shows, and the nearest family that is read.

A table says what sets known types apart where their configuration does not; elsewhere keys show it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...errors import nearest_name
from ..activations import GATES, PLAIN
from .types import REFUSED

READ_LAYER_TYPES = ("full_attention", "sliding_attention", "attention")
READ_ACTIVATIONS = (*PLAIN, *GATES)
SAME_LETTERS = 3
Shown = Callable[[Mapping[str, Any]], str]
"""A feature of a configuration in words; '' if it is not there."""


def _any(text: str, *keys: str) -> Shown:
    def shown(document: Mapping[str, Any]) -> str:
        return text if any(document.get(key) for key in keys) else ""

    return shown


def _experts(document: Mapping[str, Any]) -> str:
    keys = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    numbers = [document.get(key) for key in keys]
    found = [x for x in numbers if isinstance(x, int) and x > 1]
    return f"{found[0]} experts" if found else ""


def _layer_kinds(document: Mapping[str, Any]) -> str:
    for key in ("layer_types", "layers_block_type", "block_types", "attention_types"):
        kinds = document.get(key)
        if isinstance(kinds, list):
            named = {str(kind) for kind in kinds if isinstance(kind, str)}
            if others := sorted(named - set(READ_LAYER_TYPES)):
                return "layers of " + ", ".join(others)
    return ""


def _tower(kind: str, *keys: str) -> Shown:
    def shown(document: Mapping[str, Any]) -> str:
        for key in keys:
            inner = document.get(key)
            if isinstance(inner, Mapping):
                name = inner.get("model_type")
                return f"{kind} of {name}" if name else kind
        return ""

    return shown


def _activation(document: Mapping[str, Any]) -> str:
    for key in ("hidden_act", "activation_function", "hidden_activation", "activation"):
        name = document.get(key)
        if isinstance(name, str) and name not in READ_ACTIVATIONS:
            return f"activation {name}"
    return ""


FEATURES: tuple[tuple[Shown, str], ...] = (
    (_tower("images by a tower", "vision_config", "vq_config", "image_config"), "llava"),
    (_tower("sound by a tower", "audio_config", "audio_encoder_config", "audio_encoder"), ""),
    (_tower("a Q-Former", "qformer_config", "perceiver_config"), ""),
    (_any("cross-attention or an encoder beside a decoder", "is_encoder_decoder"), "t5"),
    (_any("cross-attention", "cross_attention_layers", "add_cross_attention"), "t5"),
    (_any("attention to tokens that an indexer picks", "index_topk", "indexer_n_heads"), ""),
    (_any("hyper-connections", "hc_mult", "hc_count"), ""),
    (_any("latent attention", "kv_lora_rank"), "deepseek_v3"),
    (_any("state spaces", "mamba_d_state", "ssm_state_size", "state_size"), "nemotron_h"),
    (_any("linear attention", "linear_num_key_heads", "linear_num_heads"), "qwen3_next"),
    (_any("recurrent gates", "lru_width", "conv1d_width", "conv_L_cache"), "qwen3_next"),
    (_layer_kinds, ""),
    (_experts, "qwen3_moe"),
    (_any("embeddings of each layer", "hidden_size_per_layer_input", "ple_embed_dim"), ""),
    (_any("alternating updates", "altup_num_inputs"), ""),
    (_any("keys and values shared by layers", "num_kv_shared_layers", "use_cla"), ""),
    (_any("hashed or local attention", "num_hashes", "attention_window"), ""),
    (_any("attention to blocks of tokens", "num_random_blocks", "attention_chunk_size"), ""),
    (_any("ALiBi positions", "alibi"), ""),
    (_any("codebooks of sound", "num_codebooks", "audio_vocab_size"), ""),
    (_any("words in several parts", "num_buckets", "max_patch_length"), ""),
    (_any("norms on queries and keys", "qk_norm", "use_qk_norm", "qk_layernorm"), "qwen3"),
    (_any("heads turned in part", "partial_rotary_factor", "rotary_dim", "rotary_pct"), "glm"),
    (_any("parts side by side", "use_parallel_residual", "parallel_attn"), "gpt_neox"),
    (_any("capped logits", "final_logit_softcapping", "logits_soft_cap"), "gemma2"),
    (_any("scaled logits or residuals", "logit_scale", "residual_multiplier"), "granite"),
    (_any("segments of tokens", "type_vocab_size"), "bert"),
    (_activation, ""),
)
"""How a feature is shown, and a family that has it ('' if none has), most telling first."""


def features_of(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Features shown by a configuration and its text part, each with its nearest family."""
    inner = document.get("text_config")
    documents = [document, inner] if isinstance(inner, Mapping) else [document]
    found: dict[str, str] = {}
    for part in documents:
        for shown, nearest in FEATURES:
            if text := shown(part):
                found.setdefault(text, nearest)
    return list(found.items())


def unread_type(
    model_type: str, document: Mapping[str, Any], read: Collection[str]
) -> tuple[str, str]:
    """What a type that is not read has, in words, and the nearest type that is read.

    Args:
        model_type: the type.
        document: its configuration.
        read: the types that are read.
    """
    if model_type in REFUSED:
        return REFUSED[model_type]
    features = features_of(document)
    inner = document.get("text_config")
    text_type = inner.get("model_type") if isinstance(inner, Mapping) else None
    nearest = next((near for _, near in features if near), "")
    if text_type in read:
        nearest = f"{text_type}, its text_config"
    words = ", ".join(text for text, _ in features[:4])
    if not words:
        words = "blocks of its own kind, of which its configuration shows sizes alone"
    return words, nearest or _namesake(model_type, read) or "llama"


def _namesake(model_type: str, read: Collection[str]) -> str:
    """The nearest type of the same first letters: phi3 for phi."""
    same = [name for name in read if name[:SAME_LETTERS] == model_type[:SAME_LETTERS]]
    return nearest_name(model_type, same, count=1)
