"""Keys of a configuration that its family's reader does not read.

Those without a bearing on the model are silent, those that would change its parameters or its work
are refused, all others are listed as an assumption.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import NotBuiltError
from ...inputs.typed_keys import json_text
from ..config_keys import ConfigKeys

STRUCTURAL: Mapping[str, tuple[str, ...]] = {
    "qwen3_moe": (
        "num_experts",
        "num_local_experts",
        "moe_num_experts",
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_topk",
        "moe_k",
        "moe_intermediate_size",
        "decoder_sparse_step",
        "mlp_only_layers",
    ),
    "deepseek_v3": (
        "n_routed_experts",
        "n_shared_experts",
        "num_shared_experts",
        "moe_num_shared_experts",
        "first_k_dense_replace",
        "moe_layer_freq",
        "num_nextn_predict_layers",
        "num_mtp_layers",
        "kv_lora_rank",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "n_group",
        "topk_group",
    ),
    "qwen2_moe": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "nemotron_h": (
        "layers_block_type",
        "hybrid_override_pattern",
        "mamba_num_heads",
        "mamba_n_heads",
        "mamba_d_state",
        "ssm_state_size",
        "moe_latent_size",
    ),
    "qwen3_next": (
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "full_attention_interval",
    ),
    "qwen3": ("qk_norm", "use_qk_norm", "qk_layernorm"),
    "llama": ("attention_bias", "mlp_bias", "head_dim", "num_key_value_heads"),
    "seed_oss": ("attention_out_bias",),
    "qwen2": ("qkv_bias", "use_qkv_bias"),
    "starcoder2": ("use_bias",),
    "mistral": ("sliding_window",),
    "gemma3_text": ("layer_types", "sliding_window_pattern"),
    "gemma2": ("attn_logit_softcapping", "final_logit_softcapping"),
    "deepseek_v32": ("index_topk", "index_n_heads"),
    "llama4_text": ("attention_chunk_size", "interleave_moe_layer_step"),
    "smollm3": ("no_rope_layers", "no_rope_layer_interval"),
    "llava": ("vision_config",),
    "t5": ("num_decoder_layers", "encoder_layers", "decoder_layers"),
}
"""Nearest family that reads them → keys that change parameters or work."""
UNBUILT = (
    "audio_config",
    "hidden_size_per_layer_input",
    "vocab_size_per_layer_input",
    "num_kv_shared_layers",
    "laurel_rank",
    "altup_num_inputs",
    "cross_attention_layers",
    "use_cla",
    "use_mla",
)
"""Keys of parts that no family here has."""
ONE_IS_USUAL = (
    "decoder_sparse_step",
    "moe_layer_freq",
    "moe_num_experts",
    "moe_topk",
    "n_group",
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "topk_group",
)
"""Keys whose 1 is a model without them."""
NEUTRAL: tuple[Any, ...] = (None, False, 0, "", [], {})
SILENT_STARTS = ("_", "pooler_")
SILENT_ENDINGS = (
    "_token_id",
    "_token_ids",
    "_token_index",
    "_loss_coef",
    "_dropout",
    "_pdrop",
    "_drop",
    "_dropout_prob",
    "_initializer_range",
)
SILENT_TEXT = """
    directionality
    architectures auto_map model_type transformers_version torch_dtype dtype use_cache id2label
    label2id num_labels problem_type return_dict output_attentions output_hidden_states
    output_router_logits output_past torchscript use_bfloat16 tf_legacy_loss pruned_heads
    chunk_size_feed_forward cross_attention_hidden_size is_decoder is_encoder_decoder
    add_cross_attention tie_encoder_decoder finetuning_task task_specific_params tokenizer_class
    prefix use_return_dict gradient_checkpointing cache_implementation cache_layer_implementation
    max_position_embeddings n_ctx n_positions max_sequence_length model_max_length
    initial_context_length original_max_position_embeddings seq_length initializer_range
    initializer_factor init_std embed_init_std initializer_cutoff_factor layerdrop dropout
    attention_dropout classifier_dropout classifier_bias classifier_activation summary_type
    summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    pretraining_tp ep_size tp_size num_logits_to_keep ignore_index max_length min_length do_sample
    early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p
    repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    bad_words_ids num_return_sequences output_scores return_dict_in_generate remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens rope_theta rope_scaling
    rope_parameters rope_interleave rotary_emb_base mrope_section query_pre_attn_scalar
    scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn
    attention_softmax_in_fp32 layer_norm_eps layer_norm_epsilon rms_norm_eps norm_eps norm_epsilon
    aux_loss_alpha seq_aux router_jitter_noise router_aux_loss_coef norm_topk_prob
    routed_scaling_factor scoring_func topk_method swiglu_limit experts_per_token time_step_min
    time_step_max time_step_floor time_step_limit time_step_rank time_step_init_scheme
    time_step_scale residual_in_fp32 rescale_prenorm_residual use_mamba_kernels
    use_associative_scan mamba_ssm_cache_dtype relative_attention_max_distance dense_act_fn
    is_gated_act image_seq_length mm_tokens_per_image vision_feature_select_strategy
    image_grid_pinpoints encoder_stride pooler_act pooler_output_size projection_dim
    tokens_per_second
"""
SILENT = frozenset(SILENT_TEXT.split())
"""Keys without a bearing on parameters or work: bookkeeping, generation, losses, scales."""


def check_unread(config: ConfigKeys, model_type: str) -> None:
    """List keys that were not read, and refuse those that change the model.

    Raises:
        NotBuiltError: for the first key that would change parameters or work.
    """
    listed: dict[str, Any] = {}
    for part in (config, *config.parts):
        for key, value in part.unread():
            if _is_silent(key) or _is_neutral(key, value):
                continue
            nearest = next((n for n, keys in STRUCTURAL.items() if key in keys), "")
            if nearest or key in UNBUILT:
                _refuse(part, key, model_type, nearest)
            listed[f"{part.prefix}.{key}".removeprefix("model.")] = value
    if listed:
        keys = ", ".join(sorted(listed))
        config.assume("config_keys", keys, "read by nothing: taken to change neither size nor work")


def _refuse(part: ConfigKeys, key: str, model_type: str, nearest: str) -> None:
    value = json_text(part.document[key])
    text = f"{part.where}: {key} {value}, which {model_type} does not read,"
    hint = f"leave it out, or name a family that reads it, such as {nearest}"
    raise NotBuiltError(text, hint if nearest else "no family here has it")


def _is_silent(key: str) -> bool:
    return key in SILENT or key.startswith(SILENT_STARTS) or key.endswith(SILENT_ENDINGS)


def _is_neutral(key: str, value: Any) -> bool:
    if any(value is x or value == x for x in NEUTRAL):
        return True
    if key in ONE_IS_USUAL and value == 1:
        return True
    return key == "layer_types" and isinstance(value, list) and set(value) == {"full_attention"}
