"""Small checkpoints of the transformers library, and plans for the models in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from generators.plan_cases import Case, Sizes

from shardwright.spec.huggingface.config import model_from_config
from shardwright.spec.model.model_spec import ModelSpec

SEQ_LEN = 16
VOCAB = 64
LLAMA = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.06,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "vocab_size": VOCAB,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 24,
        "initializer_range": 0.06,
    },
    "llama": {**LLAMA, "attention_bias": True, "mlp_bias": True, "rope_theta": 500.0},
    "mistral": {**LLAMA, "sliding_window": 32, "head_dim": 16},
    "qwen2": {**LLAMA, "tie_word_embeddings": True},
    "qwen3": {**LLAMA, "head_dim": 16},
    "mixtral": {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        **LLAMA,
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
    },
}
"""Each family with what tells it apart: biases, tied tables, wide heads, norms on heads."""
DENSE = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
OF_EXPERTS = ("mixtral", "qwen3_moe")


def save_tiny(kind: str, folder: Path, shard: str = "5GB", **changes: Any) -> Path:
    """A checkpoint of random weights, biases and norms among them, as the library saves it."""
    import transformers

    config = transformers.CONFIG_MAPPING[kind](**{**CONFIGS[kind], **changes})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.05)
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def library_logits(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    """What the library makes of (batch, seq) tokens, (batch, seq, vocabulary)."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(tokens).logits
    return logits


def some_tokens(samples: int) -> torch.Tensor:
    """(samples, SEQ_LEN) random tokens."""
    return torch.randint(0, VOCAB, (samples, SEQ_LEN), generator=torch.Generator().manual_seed(1))


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, over the largest number of all."""
    return float((found - expected).abs().max() / expected.abs().max())


def model_in(folder: Path) -> ModelSpec:
    """The model that a folder's configuration describes, in a tower called as tests' plans do."""
    document = json.loads((folder / "config.json").read_text())
    model, _ = model_from_config(document, "tiny", "config.json")
    return replace(model, towers=(replace(model.towers[0], name="text"),))


@dataclass(frozen=True, kw_only=True)
class GivenModel(Sizes):
    """Sizes of a model that is there already."""

    given: ModelSpec

    def model(self) -> ModelSpec:
        return self.given


def case_for(folder: Path, name: str, ranks: int, **fields: Any) -> Case:
    """A plan in short for the model in a folder."""
    model = model_in(folder)
    sizes = GivenModel(given=model, blocks=model.block_count)
    return Case(name=name, sizes=sizes, ranks=ranks, seq_len=SEQ_LEN, **fields)
