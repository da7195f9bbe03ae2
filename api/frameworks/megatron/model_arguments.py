"""A model as Megatron-LM's arguments."""

from __future__ import annotations

from typing import Any

from ....spec.errors import InputError
from ....spec.model.feed_forward import FeedForward, Mlp, Moe
from ....spec.model.layers import BlockLayer, EmbeddingLayer, HeadLayer, MultiTokenLayer
from ....spec.model.mixers import Attention, LatentAttention
from ....spec.model.model_spec import ModelSpec

ACTIVATIONS: dict[str, dict[str, Any]] = {
    "swiglu": {"swiglu": True},
    "gelu": {},
    "gelu_tanh": {},
    "relu2": {"squared_relu": True},
}
ALLOWED = "a decoder of equal blocks, or dense blocks and then experts, as its arguments say"


def model_arguments(model: ModelSpec, seq_len: int) -> dict[str, Any]:
    """Arguments of a model; positions are the sequence's where the model leaves them open.

    Raises:
        InputError: a model that no argument describes.
    """
    blocks = [layer for layer in model.layers() if isinstance(layer, BlockLayer)]
    embedding, head = model.layers()[0], _head(model)
    if not blocks or not isinstance(embedding, EmbeddingLayer) or head is None:
        raise _unsaid(model, "no decoder over a vocabulary")
    block = blocks[-1]
    multi = sum(isinstance(layer, MultiTokenLayer) for layer in model.layers())
    arguments: dict[str, Any] = {
        "num_layers": len(blocks),
        "hidden_size": block.hidden,
        **_attention(model, blocks),
        **_feed_forward(model, blocks),
        "normalization": "RMSNorm" if block.norm == "rmsnorm" else "LayerNorm",
        "norm_epsilon": block.norm_eps,
        "untie_embeddings_and_output_weights": not model.tie_embeddings,
        "padded_vocab_size": embedding.vocab,
        "mtp_num_layers": multi or None,
    }
    positions = embedding.positions
    if positions != 0:
        arguments["position_embedding_type"] = "learned_absolute"
    arguments["max_position_embeddings"] = positions or seq_len
    return arguments


def _head(model: ModelSpec) -> HeadLayer | None:
    heads = [layer for layer in model.layers() if isinstance(layer, HeadLayer)]
    return heads[0] if len(heads) == 1 and len(model.towers) == 1 else None


def _unsaid(model: ModelSpec, what: str) -> InputError:
    return InputError("model", f"{model.name} with {what}", ALLOWED)


def _attention(model: ModelSpec, blocks: list[BlockLayer]) -> dict[str, Any]:
    kinds = {block.attention for block in blocks}
    if len(kinds) > 1:
        raise _unsaid(model, "attention of several kinds")
    mixer = kinds.pop()
    if isinstance(mixer, LatentAttention):
        return _latent(mixer)
    if not isinstance(mixer, Attention):
        raise _unsaid(model, "layers without attention")
    shared = mixer.kv_heads != mixer.heads
    plain = not mixer.qkv_bias or not mixer.out_bias
    arguments: dict[str, Any] = {
        "num_attention_heads": mixer.heads,
        "group_query_attention": shared,
        "num_query_groups": mixer.kv_heads if shared else None,
        "kv_channels": mixer.head_dim,
        "qk_layernorm": mixer.qk_norm,
        "disable_bias_linear": plain,
        "add_qkv_bias": plain and mixer.qkv_bias,
    }
    if mixer.rotary:
        share = (mixer.rotary_dim or mixer.head_dim) / mixer.head_dim
        arguments |= {
            "position_embedding_type": "rope",
            "rotary_base": mixer.rope_theta,
            "rotary_percent": share if share != 1 else None,
        }
    else:
        arguments["position_embedding_type"] = "none"
    if mixer.window is not None:
        arguments["window_size"] = f"({mixer.window - 1},0)"
    return arguments


def _latent(mixer: LatentAttention) -> dict[str, Any]:
    return {
        "num_attention_heads": mixer.heads,
        "multi_latent_attention": True,
        "q_lora_rank": mixer.query_rank,
        "kv_lora_rank": mixer.kv_rank,
        "qk_head_dim": mixer.nope_dim,
        "qk_pos_emb_head_dim": mixer.rope_dim,
        "v_head_dim": mixer.value_dim,
        "disable_bias_linear": not mixer.bias,
        "position_embedding_type": "rope",
        "rotary_base": mixer.rope_theta,
    }


def _feed_forward(model: ModelSpec, blocks: list[BlockLayer]) -> dict[str, Any]:
    parts = [block.mlp for block in blocks]
    dense = [part for part in parts if isinstance(part, Mlp)]
    sparse = [part for part in parts if isinstance(part, Moe)]
    if len(dense) + len(sparse) < len(parts) or len(set(dense)) > 1 or len(set(sparse)) > 1:
        raise _unsaid(model, "feed-forward parts of several kinds")
    arguments = _width(model, dense[0]) if dense else {}
    if not sparse:
        return arguments
    return {**_experts(model, sparse[0]), **arguments, **_places(model, parts)}


def _width(model: ModelSpec, part: Mlp | Moe) -> dict[str, Any]:
    if part.activation not in ACTIVATIONS:
        raise _unsaid(model, f"the activation {part.activation}")
    return {"ffn_hidden_size": part.ffn, **ACTIVATIONS[part.activation]}


def _experts(model: ModelSpec, part: Moe) -> dict[str, Any]:
    if part.gate != "topk":
        raise _unsaid(model, f"the gate {part.gate}")
    if part.balance is not None or not part.normalize:
        raise _unsaid(model, "a balance of experts or raw weights, which nothing here writes yet")
    return {
        **_width(model, part),
        "num_experts": part.experts,
        "moe_router_topk": part.topk,
        "moe_ffn_hidden_size": part.ffn,
        "moe_shared_expert_intermediate_size": part.shared_ffn or None,
        "moe_shared_expert_gate": part.shared_gate,
        "moe_router_score_function": part.score,
        "moe_router_enable_expert_bias": part.router_bias,
        "moe_router_num_groups": part.groups if part.groups > 1 else None,
        "moe_router_group_topk": part.groups_per_token if part.groups > 1 else None,
        "moe_expert_capacity_factor": part.capacity_factor,
        "moe_grouped_gemm": True,
    }


def _places(model: ModelSpec, parts: list[FeedForward | None]) -> dict[str, Any]:
    sparse = [isinstance(part, Moe) for part in parts]
    first = sparse.index(True)
    if not all(sparse[first:]):
        raise _unsaid(model, "experts in some layers only")
    return {"moe_layer_freq": f"([0]*{first}+[1]*{len(sparse) - first})"} if first else {}
