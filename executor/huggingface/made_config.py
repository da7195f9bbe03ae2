"""A ``config.json`` for a model without one, by equivalent family."""

from __future__ import annotations

from typing import Any

from ...spec.model.experts import experts_of
from ...spec.model.feed_forward import Mlp, Moe
from ...spec.model.layers import BlockLayer, EmbeddingLayer
from ...spec.model.mixers import Attention
from ...spec.model.model_spec import ModelSpec

Document = dict[str, Any]
GPT2_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}


def candidates(model: ModelSpec, seq_len: int) -> list[Document]:
    """Candidate configurations of this model, for the caller to verify.

    ``model`` has one tower of embedding, blocks and head; ``seq_len`` is the longest in training.
    """
    layers = model.layers()
    block = next((x for x in layers if isinstance(x, BlockLayer)), None)
    table = layers[0]
    if block is None or not isinstance(table, EmbeddingLayer):
        return []
    if not isinstance(block.attention, Attention) or block.mlp is None:
        return []
    positions = seq_len if table.positions is None else table.positions
    attention = block.attention
    likes = [_llama(model, block, attention, seq_len, kind) for kind in CLASSES]
    return [_gpt2(model, block, attention, positions), *likes]


def _ends() -> Document:
    return {"bos_token_id": None, "eos_token_id": None}


def _gpt2(model: ModelSpec, block: BlockLayer, attention: Attention, positions: int) -> Document:
    mlp = block.mlp
    used = GPT2_ACTIVATIONS.get(mlp.activation, "") if isinstance(mlp, Mlp) else ""
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": model.vocab,
        "n_positions": positions,
        "n_embd": model.hidden,
        "n_layer": model.block_count,
        "n_head": attention.heads,
        "n_inner": mlp.ffn if mlp is not None else 0,
        "activation_function": used,
        "layer_norm_epsilon": block.norm_eps,
        "tie_word_embeddings": model.tie_embeddings,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        **_ends(),
    }


CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


def _llama(
    model: ModelSpec, block: BlockLayer, attention: Attention, seq_len: int, kind: str
) -> Document:
    mlp = block.mlp
    document: Document = {
        "model_type": kind,
        "architectures": [CLASSES[kind]],
        "vocab_size": model.vocab,
        "hidden_size": block.hidden,
        "intermediate_size": mlp.ffn if mlp is not None else 0,
        "num_hidden_layers": model.block_count,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": block.norm_eps,
        "rope_theta": attention.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": attention.rope_theta},
        "max_position_embeddings": seq_len,
        "tie_word_embeddings": model.tie_embeddings,
        "attention_dropout": 0.0,
        **_ends(),
    }
    if kind in ("llama", "qwen3", "qwen3_moe"):
        document["attention_bias"] = attention.qkv_bias
    if kind == "llama":
        document["mlp_bias"] = isinstance(mlp, Mlp) and mlp.bias
    if kind in ("mistral", "mixtral"):
        document["sliding_window"] = attention.window
    if isinstance(mlp, Moe):
        document |= {"num_local_experts": mlp.experts, "num_experts_per_tok": mlp.topk}
        document |= _balance(block, model)
        if kind == "qwen3_moe":
            document |= {"moe_intermediate_size": mlp.ffn, "norm_topk_prob": mlp.normalize}
    return document


def _balance(block: BlockLayer, model: ModelSpec) -> Document:
    """The keys of a balance that transformers' classes train with; what else there is differs."""
    balance = block.mlp.balance if isinstance(block.mlp, Moe) else None
    if balance is None:
        return {}
    sparse = sum(experts_of(layer) is not None for layer in model.layers())
    noise = {"router_jitter_noise": balance.jitter} if balance.jitter else {}
    if not balance.aux_loss:
        return noise
    coefficient = balance.aux_loss * sparse
    return {"output_router_logits": True, "router_aux_loss_coef": coefficient, **noise}
