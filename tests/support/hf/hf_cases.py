"""Small configurations of the transformers library, at least one for each kind of layer."""

from __future__ import annotations

from dataclasses import replace

from hf.hf_case import SEQ_LEN, VOCAB, BlockCase
from hf.hf_expert_cases import EXPERT_CASES
from hf.hf_image_cases import IMAGE_CASES, IMAGE_ENDS

from shardwright.spec.choices import ATTENTIONS

TOKENS = {"vocab_size": VOCAB, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0}
SIZES = TOKENS | {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 160,
    "head_dim": 16,
}
GPT2 = TOKENS | {
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 1,
    "n_positions": 64,
    "attn_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
}
PLAIN = {name: SIZES[name] for name in SIZES if name not in ("num_key_value_heads", "head_dim")}
EXPERTS = SIZES | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = PLAIN | {
    "num_key_value_heads": 4,
    "q_lora_rank": 40,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 48,
    "n_shared_experts": 1,
}
NEMOTRON = TOKENS | {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 160,
    "layers_block_type": ["mamba", "attention", "moe"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 24,
    "n_groups": 2,
    "chunk_size": 12,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "moe_shared_expert_intermediate_size": 32,
}
NEXT = EXPERTS | {
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "mlp_only_layers": [0, 1],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 24,
    "linear_value_head_dim": 16,
    "shared_expert_intermediate_size": 32,
}
SEED_OSS = {"attention_dropout": 0.0, "residual_dropout": 0.0, "attention_out_bias": True}
GEMMA4 = SIZES | {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 8,
    "hidden_size_per_layer_input": 0,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "global_head_dim": 32,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
IMAGE = {"image_size": 16, "patch_size": 4}
T5 = {
    "vocab_size": VOCAB,
    "d_model": 64,
    "num_heads": 4,
    "num_layers": 1,
    "d_ff": 160,
    "d_kv": 16,
    "dropout_rate": 0.0,
}
LLAVA = {
    "vision_config": PLAIN | IMAGE | {"model_type": "clip_vision_model"},
    "text_config": SIZES | {"model_type": "llama", "hidden_size": 48},
}

BLOCKS = [
    BlockCase(name="gpt2", config="GPT2Config", part="h.0", sizes=GPT2),
    BlockCase(
        name="opt",
        config="OPTConfig",
        part="decoder.layers.0",
        sizes=PLAIN | {"ffn_dim": 160, "word_embed_proj_dim": 64, "dropout": 0.0},
    ),
    BlockCase(name="gpt_neox", config="GPTNeoXConfig", sizes=PLAIN),
    BlockCase(name="llama", config="LlamaConfig", sizes=SIZES),
    BlockCase(name="mistral", config="MistralConfig", sizes=SIZES | {"sliding_window": None}),
    BlockCase(
        name="window",
        config="MistralConfig",
        sizes=SIZES | {"sliding_window": 8},
        attentions=("unfused",),
    ),
    BlockCase(name="qwen2", config="Qwen2Config", sizes=SIZES),
    BlockCase(name="qwen3", config="Qwen3Config", sizes=SIZES),
    BlockCase(name="gemma", config="GemmaConfig", sizes=SIZES),
    BlockCase(name="gemma2", config="Gemma2Config", sizes=SIZES, attentions=("unfused",)),
    BlockCase(name="gemma3", config="Gemma3TextConfig", sizes=SIZES),
    BlockCase(name="granite", config="GraniteConfig", sizes=SIZES | {"residual_multiplier": 0.5}),
    BlockCase(name="glm4", config="Glm4Config", sizes=SIZES),
    BlockCase(name="smollm3", config="SmolLM3Config", sizes=SIZES | {"no_rope_layers": [0]}),
    BlockCase(name="seed_oss", config="SeedOssConfig", sizes=SIZES | SEED_OSS),
    BlockCase(name="ernie4_5", config="Ernie4_5Config", sizes=SIZES),
    BlockCase(name="hunyuan", config="HunYuanDenseV1Config", sizes=SIZES),
    BlockCase(name="ministral3", config="Ministral3Config", sizes=SIZES),
    BlockCase(name="olmo2", config="Olmo2Config", sizes=SIZES),
    BlockCase(
        name="olmo3_window",
        config="Olmo3Config",
        sizes=SIZES | {"sliding_window": 8},
        attentions=("unfused",),
    ),
    BlockCase(name="exaone4", config="Exaone4Config", sizes=SIZES),
    *(
        BlockCase(
            name=name,
            config="Gemma4TextConfig",
            part=f"layers.{block}",
            sizes=GEMMA4,
            block=block,
            attentions=attentions,
        )
        for name, block, attentions in (
            ("gemma4_window", 0, ("unfused",)),
            ("gemma4_full", 1, ATTENTIONS),
        )
    ),
    BlockCase(name="mixtral", config="MixtralConfig", sizes=SIZES | {"num_local_experts": 4}),
    BlockCase(name="qwen3_moe", config="Qwen3MoeConfig", sizes=EXPERTS),
    BlockCase(
        name="qwen2_moe",
        config="Qwen2MoeConfig",
        sizes=EXPERTS | {"shared_expert_intermediate_size": 32},
    ),
    BlockCase(
        name="gpt_oss",
        config="GptOssConfig",
        sizes=SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2},
        attentions=("unfused",),
    ),
    BlockCase(
        name="latent",
        config="DeepseekV3Config",
        sizes=LATENT | {"first_k_dense_replace": 1},
        attentions=("unfused",),
    ),
    BlockCase(
        name="deepseek_v3",
        config="DeepseekV3Config",
        sizes=LATENT | {"first_k_dense_replace": 0},
        attentions=("unfused",),
    ),
    BlockCase(name="mamba2", config="NemotronHConfig", sizes=NEMOTRON, attentions=("unfused",)),
    BlockCase(
        name="nemotron_attention",
        config="NemotronHConfig",
        part="layers.1",
        sizes=NEMOTRON,
        block=1,
    ),
    BlockCase(
        name="nemotron_experts",
        config="NemotronHConfig",
        part="layers.2",
        sizes=NEMOTRON,
        block=2,
    ),
    BlockCase(
        name="gated_delta_net",
        config="Qwen3NextConfig",
        sizes=NEXT,
        seq_len=160,
        attentions=("unfused",),
    ),
    BlockCase(
        name="gated_attention", config="Qwen3NextConfig", part="layers.1", sizes=NEXT, block=1
    ),
    BlockCase(name="bert", config="BertConfig", part="encoder.layer.0", sizes=PLAIN | NO_DROPOUT),
    BlockCase(
        name="vit",
        config="ViTConfig",
        sizes=PLAIN | NO_DROPOUT | IMAGE,
        seq_len=17,
        inputs=("pixel_values",),
    ),
    *(
        BlockCase(
            name=f"t5_{tower}",
            config="T5Config",
            part=f"{tower}.block.0",
            sizes=T5,
            block=block,
            inputs=("input_ids", "decoder_input_ids"),
            attentions=("unfused",),
        )
        for block, tower in enumerate(("encoder", "decoder"))
    ),
]
OTHER_LAYERS = [
    BlockCase(
        name="embedding", config="LlamaConfig", part="embed_tokens", sizes=SIZES, kind="embedding"
    ),
    BlockCase(
        name="bert_embedding",
        config="BertConfig",
        part="embeddings",
        sizes=PLAIN | NO_DROPOUT | {"max_position_embeddings": SEQ_LEN},
        kind="embedding",
    ),
    BlockCase(
        name="patches",
        config="ViTConfig",
        part="embeddings",
        sizes=PLAIN | NO_DROPOUT | IMAGE,
        kind="patches",
        seq_len=17,
        inputs=("pixel_values",),
    ),
    BlockCase(name="head", config="LlamaConfig", part="LlamaForCausalLM", sizes=SIZES, kind="head"),
    BlockCase(
        name="bert_head",
        config="BertConfig",
        part="BertForMaskedLM",
        sizes=PLAIN | NO_DROPOUT,
        kind="head",
    ),
    BlockCase(
        name="classifier",
        config="ViTConfig",
        part="ViTForImageClassification",
        sizes=PLAIN | NO_DROPOUT | IMAGE,
        kind="classifier",
        seq_len=17,
    ),
    BlockCase(
        name="projector",
        config="LlavaConfig",
        part="LlavaForConditionalGeneration",
        sizes=LLAVA,
        kind="projector",
    ),
]
"""Layers that do not attend: one attention stands for both."""

CASES = [
    *BLOCKS,
    *EXPERT_CASES,
    *IMAGE_CASES,
    *(replace(case, attentions=("unfused",)) for case in (*OTHER_LAYERS, *IMAGE_ENDS)),
]
