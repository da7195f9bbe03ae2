"""Typed keys of a model from Megatron-LM's arguments.

Names and defaults: Megatron-LM megatron/training/arguments.py and
megatron/core/transformer/transformer_config.py at core 0.14.
"""

from __future__ import annotations

import re
from typing import Any

from ..file_keys import FileKeys

VOCABULARIES = {
    "GPT2BPETokenizer": 50257,
    "BertWordPieceLowerCase": 30522,
    "BertWordPieceCase": 28996,
    "Llama2Tokenizer": 32000,
}
"""Tokens of tokenizers that hold one vocabulary."""
USUAL_VOCABULARY = 128256
LAYER_RUN = re.compile(r"\[([01])\]\*?(\d*)")
UNSUPPORTED = {
    "hybrid_attention_ratio": "layers of several kinds",
    "experimental_attention_variant": "an attention of one kind in all layers",
    "linear_attention_type": "an attention of one kind in all layers",
    "linear_attention_freq": "an attention of one kind in all layers",
    "window_attn_skip_freq": "a window of all layers or of none",
    "encoder_num_layers": "a decoder alone",
    "moe_latent_size": "experts of the hidden size",
    "quick_geglu": "another activation",
    "heterogeneous_layers_config_path": "layers alike",
    "heterogeneous_layers_config_encoded_json": "layers alike",
}
"""Arguments of models that typed keys do not hold, and what stands in for them."""


def model_keys(keys: FileKeys) -> dict[str, Any]:
    """The model that the arguments describe, in typed keys.

    Raises:
        InputError: a size is missing or cannot be read, or the model is of another kind.
    """
    keys.refuse(UNSUPPORTED)
    keys.require(("num_layers", "hidden_size", "num_attention_heads"))
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    gated = keys.flag_or("swiglu") or keys.flag_or("gated_linear_unit")
    model: dict[str, Any] = {
        "layers": keys.count("num_layers"),
        "hidden": hidden,
        "heads": heads,
        "vocab": _vocabulary(keys),
        "ffn": keys.count_or("ffn_hidden_size", _usual_ffn(hidden, gated)),
        "activation": _activation(keys, gated),
        "norm": keys.word_or("normalization", "LayerNorm", ("LayerNorm", "RMSNorm")).casefold(),
        "norm_eps": keys.number_or("norm_epsilon", keys.number_or("layernorm_epsilon", 1e-5)),
        "tie_embeddings": not keys.flag_or("untie_embeddings_and_output_weights"),
        **_biases(keys),
        **_positions(keys),
    }
    if keys.flag_or("multi_latent_attention"):
        model.pop("positions", None)
        model |= _latent(keys)
    else:
        model |= _heads(keys, heads)
    if keys.count_or("num_experts", 0) or keys.count_or("num_moe_experts", 0):
        model |= _experts(keys)
    if layers := keys.count_or("mtp_num_layers", 0):
        model["mtp"] = layers
    return model | _pattern(keys)


def _pattern(keys: FileKeys) -> dict[str, Any]:
    """Blocks of one part each, by a hybrid's letters."""
    found = keys.has("hybrid_layer_pattern", "hybrid_override_pattern")
    is_hybrid = keys.flag_or("is_hybrid_model")
    if found is None:
        if is_hybrid:
            raise keys.unsupported("is_hybrid_model", "a pattern of its layers, or layers alike")
        return {}
    letters = keys.text(found)
    if set(letters) - set("M*-E"):
        raise keys.unsupported(found, "the letters M, *, - and E")
    model: dict[str, Any] = {"pattern": letters}
    for key, name in (
        ("mamba_num_heads", "state_heads"),
        ("mamba_head_dim", "state_head_dim"),
        ("mamba_state_dim", "state_dim"),
        ("mamba_num_groups", "state_groups"),
    ):
        if value := keys.count_if(key):
            model[name] = value
    return model


def _usual_ffn(hidden: int, gated: bool) -> int:
    """Megatron-LM's width where none is given."""
    return int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden


def _vocabulary(keys: FileKeys) -> int:
    tokenizer = keys.text_or("tokenizer_type", "GPT2BPETokenizer")
    if keys.has("padded_vocab_size"):
        return keys.count("padded_vocab_size")
    if keys.has("vocab_size"):
        extra = tokenizer == "NullTokenizer"  # it adds a token for the end of a document
        return keys.count("vocab_size") + extra
    if tokenizer in VOCABULARIES:
        return int(keys.assume("vocab", VOCABULARIES[tokenizer], f"the tokens of {tokenizer}"))
    why = f"left out; {tokenizer} decides, and its files are not read: give vocab_size"
    return int(keys.assume("vocab", USUAL_VOCABULARY, why))


def _activation(keys: FileKeys, gated: bool) -> str:
    if gated:
        return "swiglu"
    if keys.flag_or("squared_relu"):
        return "relu2"
    keys.flag_or("openai_gelu")
    return "gelu_tanh"


def _biases(keys: FileKeys) -> dict[str, bool]:
    plain = keys.flag_or("disable_bias_linear")
    biased = not plain and keys.flag_or("add_bias_linear", True)
    return {
        "qkv_bias": biased or keys.flag_or("add_qkv_bias"),
        "out_bias": biased,
        "mlp_bias": biased,
    }


def _positions(keys: FileKeys) -> dict[str, Any]:
    words = ("learned_absolute", "rope", "mrope", "yarn", "none")
    kind = keys.word_or("position_embedding_type", "learned_absolute", words)
    if keys.flag_or("use_rotary_position_embeddings"):
        kind = "rope"
    if kind == "learned_absolute":
        keys.require(("max_position_embeddings",))
        return {"position": "learned", "positions": keys.count("max_position_embeddings")}
    keys.has("max_position_embeddings", "rotary_scaling_factor", "use_rope_scaling")
    if kind == "none":
        return {"position": "none"}
    return {"position": "rope", "rope_theta": keys.number_or("rotary_base", 10000.0)}


def _heads(keys: FileKeys, heads: int) -> dict[str, Any]:
    """Attention of shared or own key heads."""
    groups = keys.count_or("num_query_groups", heads) or heads
    shared = keys.flag_or("group_query_attention", default=keys.owner != "Megatron-LM")
    model: dict[str, Any] = {"kv_heads": groups if shared else heads}
    if width := keys.count_if("kv_channels"):
        model["head_dim"] = width
    if keys.flag_or("qk_layernorm"):
        model["qk_norm"] = True
    share = keys.number_or("rotary_percent", 1.0)
    if share < 1:
        head = model.get("head_dim") or keys.count("hidden_size") // heads
        model["rotary_dim"] = int(head * share)
    if window := keys.text_or("window_size", ""):
        model["window"] = _first_number(keys, "window_size", window) + 1
    return model


def _first_number(keys: FileKeys, key: str, text: str) -> int:
    found = re.search(r"\d+", text)
    if found is None:
        raise keys.error(key, "a pair of numbers, such as (4095,0)")
    return int(found.group())


def _latent(keys: FileKeys) -> dict[str, Any]:
    """Latent attention; defaults of Megatron-LM's MLATransformerConfig."""
    keys.has("kv_channels", "num_query_groups", "group_query_attention", "qk_layernorm")
    keys.has("mscale", "mscale_all_dim", "rotary_percent")
    model = {
        "kv_rank": keys.count_or("kv_lora_rank", 32, note=True),
        "nope_dim": keys.count_or("qk_head_dim", 128, note=True),
        "rope_dim": keys.count_or("qk_pos_emb_head_dim", 64, note=True),
        "value_dim": keys.count_or("v_head_dim", 128, note=True),
        "position": "rope",
    }
    if rank := keys.count_if("q_lora_rank"):
        model["q_rank"] = rank
    return model


def _experts(keys: FileKeys) -> dict[str, Any]:
    model: dict[str, Any] = {
        "experts": keys.count_if("num_experts") or keys.count("num_moe_experts"),
        "topk": keys.count_or("moe_router_topk", 2, note=True),
        "router": keys.word_or("moe_router_score_function", "softmax", ("softmax", "sigmoid")),
    }
    for key, name in (
        ("moe_ffn_hidden_size", "expert_ffn"),
        ("moe_shared_expert_intermediate_size", "shared_ffn"),
        ("moe_router_num_groups", "expert_groups"),
        ("moe_router_group_topk", "groups_per_token"),
    ):
        if value := keys.count_or(key, 0):
            model[name] = value
    for key, name in (
        ("moe_shared_expert_gate", "shared_gate"),
        ("moe_router_enable_expert_bias", "router_bias"),
    ):
        if keys.flag_or(key):
            model[name] = True
    if factor := keys.number_or("moe_expert_capacity_factor", 0.0):
        model["capacity_factor"] = factor
    return model | _sparse_layers(keys)


def _sparse_layers(keys: FileKeys) -> dict[str, int]:
    """Which layers have experts: all, or those after so many dense ones."""
    text = keys.text_or("moe_layer_freq", "1").replace(" ", "").strip("()")
    if text == "1":
        return {}
    runs = [(int(bit), int(count or 1)) for bit, count in LAYER_RUN.findall(text)]
    if LAYER_RUN.sub("", text).strip("+") or [bit for bit, _ in runs] not in ([1], [0, 1]):
        raise keys.unsupported("moe_layer_freq", "experts in every layer, or after dense ones")
    return {"dense_layers": runs[0][1]} if runs[0][0] == 0 else {}
