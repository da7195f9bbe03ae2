"""The parameters of every layer kind: names, shapes, how tensor parallelism splits them.

The executor builds these tensors and the cost model counts them, so both read this table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .errors import InputError
from .model import BlockLayer, EmbeddingLayer, HeadLayer, Layer, NormKind

PartialGradient = Literal["never", "sequence_parallel", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter tensor of a layer.

    ``split_dim`` is the dimension that tensor parallelism splits, None for a replicated one.
    ``partial_gradient`` tells when a replicated parameter's gradient is only this rank's part
    of a sum over the tensor-parallel ranks: with sequence parallelism, always, or never.
    """

    name: str
    shape: tuple[int, ...]
    split_dim: int | None = None
    initial: Literal["normal", "zeros", "ones"] = "normal"
    partial_gradient: PartialGradient = "never"

    @property
    def elements(self) -> int:
        """Elements of the whole tensor."""
        return math.prod(self.shape)

    def local_shape(self, tp: int, rank: int = 0) -> tuple[int, ...]:
        """Shape of the part on tensor-parallel rank ``rank`` of ``tp`` (rank 0 holds most)."""
        if self.split_dim is None or tp == 1:
            return self.shape
        size = self.shape[self.split_dim]
        start, stop = split_range(size, tp, rank)
        return (*self.shape[: self.split_dim], stop - start, *self.shape[self.split_dim + 1 :])


def split_range(size: int, parts: int, index: int) -> tuple[int, int]:
    """Start and end of part ``index`` when ``size`` is cut into parts of ceil(size / parts)."""
    part = -(-size // parts)
    return min(index * part, size), min((index + 1) * part, size)


def layer_parameters(layer: Layer, seq_len: int | None = None) -> tuple[ParameterSpec, ...]:
    """The parameters of a layer in the order the model holds them.

    Args:
        layer: the layer.
        seq_len: rows of a learned position table whose length the model leaves open.
    """
    if isinstance(layer, EmbeddingLayer):
        return _embedding(layer, seq_len)
    if isinstance(layer, HeadLayer):
        projection = ParameterSpec(
            name="projection.weight", shape=(layer.vocab, layer.hidden), split_dim=0
        )
        return (*_norm("norm", layer.norm, layer.hidden), projection)
    return _block(layer)


def _embedding(layer: EmbeddingLayer, seq_len: int | None) -> tuple[ParameterSpec, ...]:
    positions = seq_len if layer.positions is None else layer.positions
    if positions is None:
        raise InputError("seq_len", None, "a sequence length: the position table has no size")
    tokens = ParameterSpec(name="tokens.weight", shape=(layer.vocab, layer.hidden), split_dim=0)
    if positions == 0:
        return (tokens,)
    table = ParameterSpec(
        name="positions.weight",
        shape=(positions, layer.hidden),
        partial_gradient="sequence_parallel",
    )
    return (tokens, table)


def _norm(name: str, kind: NormKind, width: int) -> tuple[ParameterSpec, ...]:
    weight = ParameterSpec(
        name=f"{name}.weight",
        shape=(width,),
        initial="ones",
        partial_gradient="sequence_parallel",
    )
    if kind == "rmsnorm":
        return (weight,)
    bias = ParameterSpec(
        name=f"{name}.bias",
        shape=(width,),
        initial="zeros",
        partial_gradient="sequence_parallel",
    )
    return (weight, bias)


def _column(name: str, out: int, hidden: int, bias: bool) -> tuple[ParameterSpec, ...]:
    weight = ParameterSpec(name=f"{name}.weight", shape=(out, hidden), split_dim=0)
    if not bias:
        return (weight,)
    return (weight, ParameterSpec(name=f"{name}.bias", shape=(out,), split_dim=0, initial="zeros"))


def _row(name: str, hidden: int, width: int, bias: bool) -> tuple[ParameterSpec, ...]:
    weight = ParameterSpec(name=f"{name}.weight", shape=(hidden, width), split_dim=1)
    if not bias:
        return (weight,)
    offset = ParameterSpec(
        name=f"{name}.bias",
        shape=(hidden,),
        initial="zeros",
        partial_gradient="sequence_parallel",
    )
    return (weight, offset)


def _block(block: BlockLayer) -> tuple[ParameterSpec, ...]:
    attention, mlp, hidden = block.attention, block.mlp, block.hidden
    found = [*_norm("attention_norm", block.norm, hidden)]
    for name, width in (
        ("query", attention.query_dim),
        ("key", attention.kv_dim),
        ("value", attention.kv_dim),
    ):
        found += _column(name, width, hidden, attention.qkv_bias)
    if attention.qk_norm:
        found += [
            ParameterSpec(
                name=f"{name}.weight",
                shape=(attention.head_dim,),
                initial="ones",
                partial_gradient="always",
            )
            for name in ("query_norm", "key_norm")
        ]
    found += _row("output", hidden, attention.query_dim, attention.out_bias)
    found += _norm("mlp_norm", block.norm, hidden)
    if mlp.gated:
        found += _column("gate", mlp.ffn, hidden, mlp.bias)
    found += _column("up", mlp.ffn, hidden, mlp.bias)
    found += _row("down", hidden, mlp.ffn, mlp.bias)
    return tuple(found)
