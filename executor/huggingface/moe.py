"""Names of Mixtral's and Qwen3-MoE's tensors.

Llama's, a router, and three matrices per expert: Mixtral calls the gate w1, the gated projection w3
and the output w2; Qwen3 names them as in a dense MLP.
"""

from __future__ import annotations

from functools import partial

from ...spec.model.layer_parameters import ParameterSpec
from ...spec.model.layers import Layer
from . import llama
from .tensor_piece import TensorPiece

MIXTRAL = {"experts_gate": "w1", "experts_up": "w3", "experts_down": "w2"}
QWEN3 = {"experts_gate": "gate_proj", "experts_up": "up_proj", "experts_down": "down_proj"}


def _pieces(
    part: str, experts: dict[str, str], index: int, layer: Layer, spec: ParameterSpec
) -> tuple[TensorPiece, ...]:
    slot, _, kind = spec.name.rpartition(".")
    start = f"model.layers.{index - 1}.{part}"
    if slot == "router":
        return (TensorPiece(name=f"{start}.gate.{kind}", shape=spec.shape),)
    if not spec.expert:
        return llama.pieces(index, layer, spec)
    return tuple(
        TensorPiece(
            name=f"{start}.experts.{n}.{experts[slot]}.{kind}", shape=spec.shape[1:], expert=n
        )
        for n in range(spec.shape[0])
    )


mixtral_pieces = partial(_pieces, "block_sparse_moe", MIXTRAL)
"""The tensors of a parameter; see :data:`tensor_piece.Pieces`."""
qwen3_pieces = partial(_pieces, "mlp", QWEN3)
"""The same of Qwen3-MoE, in which a layer may be dense."""
