"""Small configurations of the transformers library, at least one for each kind of block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright.spec.huggingface import model_from_config
from shardwright.spec.layers import Layer
from shardwright.spec.stack import ATTENTIONS, AttentionImpl

BATCH, SEQ_LEN, VOCAB = 2, 32, 96
TOKENS = {"vocab_size": VOCAB, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0}
SIZES = TOKENS | {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 160,
    "head_dim": 16,
}


@dataclass(frozen=True, kw_only=True)
class BlockCase:
    """One layer kind: configuration class and sizes; the model's part; which layer of ours.

    ``inputs`` are what the whole model wants, so that the part is handed what it would be.
    ``attentions`` leaves out flash attention where the CPU has no such kernel: scans, scores
    with caps, sinks or a learned bias, windows (it computes every pair), values narrower than
    keys.
    """

    name: str
    config: str
    part: str = "layers.0"
    sizes: Mapping[str, Any] = field(default_factory=lambda: SIZES)
    kind: str = "block"
    block: int = 0
    seq_len: int = SEQ_LEN
    attentions: tuple[AttentionImpl, ...] = ATTENTIONS
    inputs: tuple[str, ...] = ("input_ids",)

    def configuration(self) -> Any:
        """The library's configuration object."""
        import transformers

        return getattr(transformers, self.config)(**self.sizes)

    def our_layer(self) -> Layer:
        """The layer that the configuration describes, read from its document."""
        model, _ = model_from_config(self.configuration().to_dict(), self.name, self.name)
        return [layer for layer in model.layers() if layer.kind == self.kind][self.block]


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
LOSS = "head and loss"

CASES = [
    BlockCase(name="gpt2", config="GPT2Config", part="h.0", sizes=GPT2),
    BlockCase(
        name="opt",
        config="OPTConfig",
        part="decoder.layers.0",
        sizes=PLAIN | {"ffn_dim": 160, "word_embed_proj_dim": 64, "dropout": 0.0},
    ),
    BlockCase(name="gpt_neox", config="GPTNeoXConfig", sizes=PLAIN),
    BlockCase(name="llama", config="LlamaConfig"),
    BlockCase(name="mistral", config="MistralConfig", sizes=SIZES | {"sliding_window": None}),
    BlockCase(
        name="window",
        config="MistralConfig",
        sizes=SIZES | {"sliding_window": 8},
        attentions=("unfused",),
    ),
    BlockCase(name="qwen2", config="Qwen2Config"),
    BlockCase(name="qwen3", config="Qwen3Config"),
    BlockCase(name="gemma", config="GemmaConfig"),
    BlockCase(name="gemma2", config="Gemma2Config", attentions=("unfused",)),
    BlockCase(name="gemma3", config="Gemma3TextConfig"),
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
    BlockCase(name="embedding", config="LlamaConfig", part="embed_tokens", kind="embedding"),
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
    BlockCase(name="head", config="LlamaConfig", part=LOSS, kind="head"),
]
