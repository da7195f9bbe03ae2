"""Names of Mixtral's tensors: Llama's, and three matrices an expert.

The published files call the gate w1, the projection that it gates w3, and the one back w2.
"""

from __future__ import annotations

from ....spec.layers import Layer
from ....spec.parameters import ParameterSpec
from . import llama
from .piece import Piece

PART = "block_sparse_moe"
EXPERTS = {"experts_gate": "w1", "experts_up": "w3", "experts_down": "w2"}


def pieces(index: int, layer: Layer, spec: ParameterSpec) -> tuple[Piece, ...]:
    """The tensors of a parameter; see :data:`.piece.Pieces`."""
    slot, _, kind = spec.name.rpartition(".")
    start = f"model.layers.{index - 1}.{PART}"
    if slot == "router":
        return (Piece(name=f"{start}.gate.{kind}", shape=spec.shape),)
    if not spec.expert:
        return llama.pieces(index, layer, spec)
    return tuple(
        Piece(name=f"{start}.experts.{n}.{EXPERTS[slot]}.{kind}", shape=spec.shape[1:], expert=n)
        for n in range(spec.shape[0])
    )
