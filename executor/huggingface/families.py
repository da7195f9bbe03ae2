"""Mappings of tensor names, by family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...spec.model.layer_parameters import ParameterSpec, layer_parameters
from ...spec.model.model_spec import HeadLayer, ModelSpec
from . import gpt2, llama, moe
from .tensor_piece import TensorPiece, TensorPieces

MAPPINGS: Mapping[str, TensorPieces] = {
    "gpt2": gpt2.pieces,
    "llama": llama.pieces,
    "mistral": llama.pieces,
    "qwen2": llama.pieces,
    "qwen3": llama.pieces,
    "mixtral": moe.mixtral_pieces,
    "qwen3_moe": moe.qwen3_pieces,
}
"""By ``model_type``."""
BASES = ("model.", "transformer.")
"""What names of the bare model, without its head, lack at their start."""
BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
"""Ends of names of what older files hold and the model computes by itself."""
TIED_PROJECTION = "lm_head.weight"


def mapping(config: Mapping[str, Any]) -> TensorPieces:
    """The mapping of a checked configuration."""
    return MAPPINGS[config["model_type"]]


def own_parameters(model: ModelSpec, index: int, seq_len: int) -> list[ParameterSpec]:
    """A layer's parameters, except a head tied to the embedding's table."""
    layer = model.layers()[index]
    tied = model.tie_embeddings and isinstance(layer, HeadLayer)
    specs = layer_parameters(layer, seq_len)
    return [spec for spec in specs if not (tied and spec.name == "projection.weight")]


def layer_pieces(
    model: ModelSpec, index: int, seq_len: int, pieces: TensorPieces
) -> Iterator[tuple[ParameterSpec, TensorPiece]]:
    """Every checkpoint tensor of a layer, with its parameter or part."""
    layer = model.layers()[index]
    for spec in own_parameters(model, index, seq_len):
        for piece in pieces(index, layer, spec):
            yield spec, piece


def tensor_shapes(
    model: ModelSpec, index: int, seq_len: int, pieces: TensorPieces
) -> dict[str, tuple[int, ...]]:
    """The checkpoint's tensors of a layer, by name."""
    return {piece.name: piece.shape for _, piece in layer_pieces(model, index, seq_len, pieces)}


def is_ignorable(name: str, tied: bool) -> bool:
    """Return True if a checkpoint tensor may stay unread."""
    return name.endswith(BUFFERS) or (tied and name == TIED_PROJECTION)
