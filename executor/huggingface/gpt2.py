"""Names of GPT-2's tensors.

Its projections are Conv1D: weights are (in, out). ``c_attn`` fuses queries, keys and values, in
this order.
"""

from __future__ import annotations

from ...spec.model.layer_parameters import ParameterSpec
from ...spec.model.layers import BlockLayer, Layer
from .tensor_piece import TensorPiece

NORMS = {"attention_norm": "ln_1", "mlp_norm": "ln_2"}
PROJECTIONS = {"output": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}
FUSED = ("query", "key", "value")
EMBEDDING_AND_HEAD = {
    "tokens": "transformer.wte",
    "positions": "transformer.wpe",
    "norm": "transformer.ln_f",
    "projection": "lm_head",
}


def pieces(index: int, layer: Layer, spec: ParameterSpec) -> tuple[TensorPiece, ...]:
    """The tensor of a parameter; see :data:`tensor_piece.Pieces`."""
    slot, _, kind = spec.name.rpartition(".")
    if not isinstance(layer, BlockLayer):
        return (TensorPiece(name=f"{EMBEDDING_AND_HEAD[slot]}.{kind}", shape=spec.shape),)
    start = f"transformer.h.{index - 1}"
    if slot in NORMS:
        return (TensorPiece(name=f"{start}.{NORMS[slot]}.{kind}", shape=spec.shape),)
    out, first, name = spec.shape[0], 0, PROJECTIONS.get(slot, "attn.c_attn")
    if slot in FUSED:
        out, first = out * len(FUSED), out * FUSED.index(slot)
    turned = kind == "weight"
    shape = (spec.shape[1], out) if turned else (out,)
    return (
        TensorPiece(name=f"{start}.{name}.{kind}", shape=shape, transposed=turned, first=first),
    )
