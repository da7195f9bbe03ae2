"""Small configurations of the library's families with experts and of its hybrids."""

from __future__ import annotations

from hf.hf_case import VOCAB, BlockCase

TOKENS = {"vocab_size": VOCAB, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0}
SIZES = TOKENS | {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 160,
    "head_dim": 16,
}
GLM = SIZES | {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 0,
    "use_qk_norm": True,
}
ERNIE = SIZES | {
    "moe_num_experts": 4,
    "moe_k": 2,
    "moe_intermediate_size": 48,
    "moe_layer_start_index": 0,
}
GRANITE = {
    **{name: SIZES[name] for name in SIZES if name != "head_dim"},
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "intermediate_size": 48,
    "residual_multiplier": 0.22,
}
GRANITE_HYBRID = GRANITE | {
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "shared_intermediate_size": 32,
    "mamba_n_heads": 8,
    "mamba_d_state": 24,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 12,
}
LFM2 = {
    **{name: SIZES[name] for name in SIZES if name != "head_dim"},
    "num_hidden_layers": 2,
    "layer_types": ["conv", "full_attention"],
    "moe_intermediate_size": 48,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_dense_layers": 1,
}
FALCON = SIZES | {
    "mamba_d_ssm": 128,
    "mamba_n_heads": 8,
    "mamba_d_state": 24,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 12,
}
PLAIN = {name: SIZES[name] for name in SIZES if name != "head_dim"} | {
    "num_experts_per_tok": 2,
    "intermediate_size": 48,
}
HUNYUAN = SIZES | {"num_experts": 4, "moe_topk": 2, "intermediate_size": 48}
LLAMA4 = SIZES | {
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 4,  # the library's experts work on every token, whoever is chosen
    "no_rope_layers": [1, 0],
}
V32 = {name: SIZES[name] for name in SIZES if name != "head_dim"} | {
    "num_key_value_heads": 4,
    "q_lora_rank": 40,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "index_topk": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "first_k_dense_replace": 1,
}
MINIMAX = PLAIN | {
    "num_local_experts": 4,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "block_size": 12,
}
KIMI = {name: V32[name] for name in V32 if not name.startswith("index")} | {
    "q_lora_rank": None,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "mlp_layer_types": ["dense", "dense"],
    "linear_num_heads": 2,
    "linear_head_dim": 24,
}
del KIMI["first_k_dense_replace"]
SOLAR = {name: GLM[name] for name in GLM if name not in ("use_qk_norm", "first_k_dense_replace")}
GLM_LITE = {name: V32[name] for name in V32 if not name.startswith("index")} | {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "mlp_layer_types": ["sparse"],
}
del GLM_LITE["first_k_dense_replace"]
BAMBA = {name: GRANITE_HYBRID[name] for name in GRANITE_HYBRID if name.startswith("mamba")} | {
    **{name: SIZES[name] for name in SIZES if name != "head_dim"},
    "num_hidden_layers": 2,
    "attn_layer_indices": [1],
}
EXAONE = SIZES | {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 4,
}

EXPERT_CASES = [
    BlockCase(name="glm4_moe", config="Glm4MoeConfig", sizes=GLM),
    BlockCase(name="ernie4_5_moe", config="Ernie4_5_MoeConfig", sizes=ERNIE),
    BlockCase(name="granitemoe", config="GraniteMoeConfig", sizes=GRANITE),
    BlockCase(name="olmoe", config="OlmoeConfig", sizes=PLAIN | {"num_experts": 4}),
    BlockCase(name="flex_olmo", config="FlexOlmoConfig", sizes=PLAIN | {"num_experts": 4}),
    BlockCase(name="phimoe", config="PhimoeConfig", sizes=PLAIN | {"num_local_experts": 4}),
    BlockCase(
        name="minimax_m2",
        config="MiniMaxM2Config",
        sizes=PLAIN | {"num_local_experts": 4, "head_dim": 16, "rotary_dim": 8},
    ),
    BlockCase(name="hunyuan_moe", config="HunYuanMoEV1Config", sizes=HUNYUAN),
    BlockCase(
        name="latent_indexed", config="DeepseekV32Config", sizes=V32, attentions=("unfused",)
    ),
    BlockCase(name="lightning", config="MiniMaxConfig", sizes=MINIMAX, attentions=("unfused",)),
    BlockCase(
        name="minimax_attention",
        config="MiniMaxConfig",
        part="layers.1",
        sizes=MINIMAX,
        block=1,
    ),
    BlockCase(
        name="kimi_delta",
        config="KimiLinearConfig",
        sizes=KIMI,
        seq_len=80,
        attentions=("unfused",),
    ),
    BlockCase(
        name="latent_unturned",
        config="KimiLinearConfig",
        part="layers.1",
        sizes=KIMI,
        block=1,
        attentions=("unfused",),
    ),
    BlockCase(name="bamba_mamba", config="BambaConfig", sizes=BAMBA, attentions=("unfused",)),
    BlockCase(
        name="bamba_attention",
        config="BambaConfig",
        part="layers.1",
        sizes=BAMBA,
        block=1,
        attentions=("unfused",),
    ),
    BlockCase(name="solar_open", config="SolarOpenConfig", sizes=SOLAR),
    BlockCase(
        name="glm4_moe_lite",
        config="Glm4MoeLiteConfig",
        sizes=GLM_LITE,
        attentions=("unfused",),
    ),
    BlockCase(name="exaone_moe", config="ExaoneMoeConfig", part="layers.3", sizes=EXAONE, block=3),
    BlockCase(name="llama4", config="Llama4TextConfig", sizes=LLAMA4),
    BlockCase(
        name="llama4_chunks",
        config="Llama4TextConfig",
        sizes=LLAMA4 | {"attention_chunk_size": 8},
        attentions=("unfused",),
    ),
    BlockCase(
        name="llama4_no_positions",
        config="Llama4TextConfig",
        part="layers.1",
        sizes=LLAMA4,
        block=1,
    ),
    BlockCase(
        name="granite_mamba",
        config="GraniteMoeHybridConfig",
        sizes=GRANITE_HYBRID,
        attentions=("unfused",),
    ),
    BlockCase(
        name="granite_attention",
        config="GraniteMoeHybridConfig",
        part="layers.1",
        sizes=GRANITE_HYBRID,
        block=1,
    ),
    BlockCase(
        name="short_convolution", config="Lfm2MoeConfig", sizes=LFM2, attentions=("unfused",)
    ),
    BlockCase(name="lfm2_experts", config="Lfm2MoeConfig", part="layers.1", sizes=LFM2, block=1),
    BlockCase(name="falcon_h1", config="FalconH1Config", sizes=FALCON, attentions=("unfused",)),
    BlockCase(
        name="falcon_h1_norm_first",
        config="FalconH1Config",
        sizes=FALCON | {"mamba_rms_norm": True},
        attentions=("unfused",),
    ),
]
"""Blocks of families with experts and hybrids."""
