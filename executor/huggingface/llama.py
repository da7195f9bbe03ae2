"""Names of Llama's tensors, shared by Mistral, Qwen2 and Qwen3.

Weights are (out, in) and heads rotate by halves, channel i with i + head_dim / 2, both as here: one
tensor per parameter, unchanged.
"""

from __future__ import annotations

from ...spec.model.layer_parameters import ParameterSpec
from ...spec.model.layers import BlockLayer, Layer
from .tensor_piece import TensorPiece

ATTENTION = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
    "output": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
}
MLP = {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
EMBEDDING_AND_HEAD = {"tokens": "model.embed_tokens", "norm": "model.norm", "projection": "lm_head"}


def tensor_name(index: int, layer: Layer, spec: ParameterSpec) -> str:
    """Return a checkpoint's name of a parameter of layer ``index``."""
    slot, _, kind = spec.name.rpartition(".")
    if not isinstance(layer, BlockLayer):
        return f"{EMBEDDING_AND_HEAD[slot]}.{kind}"
    return f"model.layers.{index - 1}.{(ATTENTION | MLP)[slot]}.{kind}"


def pieces(index: int, layer: Layer, spec: ParameterSpec) -> tuple[TensorPiece, ...]:
    """The tensor of a parameter; see :data:`tensor_piece.Pieces`."""
    return (TensorPiece(name=tensor_name(index, layer, spec), shape=spec.shape),)
