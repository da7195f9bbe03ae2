"""The parameters of every layer kind: names, shapes, how tensor parallelism splits them.

The executor builds these tensors and the cost model counts them, so both read this table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .errors import InputError
from .feed_forward import Mlp, Moe
from .layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    MultiTokenLayer,
    NormKind,
    PatchLayer,
    ProjectorLayer,
)
from .mixers import Attention, DeltaRule, LatentAttention, Mixer, StateSpace

PartialGradient = Literal["never", "sequence_parallel", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter tensor of a layer.

    ``split_dim`` is the dimension that tensor parallelism splits, None for a replicated one.
    ``partial_gradient`` tells when a replicated parameter's gradient is only this rank's part
    of a sum over the tensor-parallel ranks: with sequence parallelism, always, or never.
    ``expert``: dimension 0 counts experts and is split over ep, ``split_dim`` over etp.
    """

    name: str
    shape: tuple[int, ...]
    split_dim: int | None = None
    initial: Literal["normal", "zeros", "ones"] = "normal"
    partial_gradient: PartialGradient = "never"
    expert: bool = False

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


Specs = tuple[ParameterSpec, ...]


def layer_parameters(layer: Layer, seq_len: int | None = None) -> Specs:
    """The parameters of a layer in the order the model holds them.

    Args:
        layer: the layer.
        seq_len: rows of a learned position table whose length the model leaves open.
    """
    if isinstance(layer, BlockLayer):
        return _block(layer)
    if isinstance(layer, EmbeddingLayer):
        return _embedding(layer, seq_len)
    if isinstance(layer, HeadLayer):
        return _head(layer)
    if isinstance(layer, MultiTokenLayer):
        return _multi_token(layer)
    if isinstance(layer, PatchLayer):
        return _patches(layer)
    if isinstance(layer, ProjectorLayer):
        return _projector(layer)
    return _classifier(layer)


def _embedding(layer: EmbeddingLayer, seq_len: int | None) -> Specs:
    positions = seq_len if layer.positions is None else layer.positions
    if positions is None:
        raise InputError("seq_len", None, "a sequence length: the position table has no size")
    found = [ParameterSpec(name="tokens.weight", shape=(layer.vocab, layer.hidden), split_dim=0)]
    for name, rows in (("positions", positions), ("token_types", layer.token_types)):
        if rows:
            found.append(_replicated(f"{name}.weight", (rows, layer.hidden)))
    return (*found, *_norm("norm", layer.norm, layer.hidden))


def _head(layer: HeadLayer) -> Specs:
    transform: list[ParameterSpec] = []
    if layer.transform:
        transform += _whole("transform", layer.hidden, layer.hidden, bias=True)
        transform += _norm("transform_norm", "layernorm", layer.hidden)
    projection = _column("projection", layer.vocab, layer.hidden, layer.bias)
    return (*_norm("norm", layer.norm, layer.hidden), *transform, *projection)


def _multi_token(layer: MultiTokenLayer) -> Specs:
    """Embedding and output weights are the model's own and not counted again."""
    return (
        *_norm("embedding_norm", layer.norm, layer.hidden),
        *_norm("hidden_norm", layer.norm, layer.hidden),
        *_column("join", layer.hidden, 2 * layer.hidden, bias=False),
        *_block(layer.block),
        *_norm("norm", layer.norm, layer.hidden),
    )


def _patches(layer: PatchLayer) -> Specs:
    pixels = layer.channels * layer.frames * layer.patch * layer.patch
    found = [*_whole("patches", layer.hidden, pixels, layer.bias)]
    if layer.class_token:
        found.append(_replicated("class_token", (layer.hidden,)))
    if layer.positions:
        found.append(_replicated("positions.weight", (layer.tokens, layer.hidden)))
    return (*found, *_norm("norm", layer.norm, layer.hidden))


def _classifier(layer: ClassifierLayer) -> Specs:
    norm = _norm("norm", layer.norm, layer.hidden)
    return (*norm, *_whole("projection", layer.classes, layer.hidden, layer.bias))


def _projector(layer: ProjectorLayer) -> Specs:
    width = layer.hidden * layer.merge
    norm = _norm("norm", layer.norm, layer.hidden)
    if not layer.inner:
        return (*norm, *_whole("projection", layer.out, width, layer.bias))
    up = _column("up", layer.inner, width, layer.bias)
    return (*norm, *up, *_row("down", layer.out, layer.inner, layer.bias))


def _replicated(name: str, shape: tuple[int, ...]) -> ParameterSpec:
    """A tensor that every tensor-parallel rank holds whole and uses on its own tokens."""
    return ParameterSpec(name=name, shape=shape, partial_gradient="sequence_parallel")


def _whole(name: str, out: int, width: int, bias: bool) -> Specs:
    """A projection that tensor parallelism does not split."""
    weight = _replicated(f"{name}.weight", (out, width))
    return (weight, _replicated(f"{name}.bias", (out,))) if bias else (weight,)


def _norm(name: str, kind: NormKind | None, width: int, split: bool = False) -> Specs:
    """Weight and bias of a norm; ``split``: over channels that tensor parallelism splits."""
    if kind is None:
        return ()
    partial: PartialGradient = "never" if split else "sequence_parallel"
    dim = 0 if split else None
    found = [
        ParameterSpec(
            name=f"{name}.weight",
            shape=(width,),
            initial="ones",
            split_dim=dim,
            partial_gradient=partial,
        )
    ]
    if kind == "layernorm":
        found.append(
            ParameterSpec(
                name=f"{name}.bias",
                shape=(width,),
                initial="zeros",
                split_dim=dim,
                partial_gradient=partial,
            )
        )
    return tuple(found)


def _column(name: str, out: int, hidden: int, bias: bool) -> Specs:
    weight = ParameterSpec(name=f"{name}.weight", shape=(out, hidden), split_dim=0)
    if not bias:
        return (weight,)
    return (weight, ParameterSpec(name=f"{name}.bias", shape=(out,), split_dim=0, initial="zeros"))


def _row(name: str, hidden: int, width: int, bias: bool) -> Specs:
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


def _per_head(name: str, heads: int) -> ParameterSpec:
    return ParameterSpec(name=name, shape=(heads,), split_dim=0)


def _block(block: BlockLayer) -> Specs:
    """Norms stand before what they normalise, or before and after it (sandwich)."""
    found: list[ParameterSpec] = []
    after = block.norm if block.norm_placement == "sandwich" else None
    if block.attention is not None:
        found += _norm("attention_norm", block.norm, block.hidden)
        found += _mixer(block.attention, block.hidden)
        found += _norm("attention_post_norm", after, block.hidden)
    if block.cross_attention is not None:
        found += _norm("cross_norm", block.norm, block.hidden)
        found += _attention(block.cross_attention, block.hidden, "cross_")
    if block.mlp is not None:
        one = block.shared_norm and block.attention is not None
        found += _norm("mlp_norm", None if one else block.norm, block.hidden)
        found += _mlp(block.mlp, block.hidden) if isinstance(block.mlp, Mlp) else _moe(block)
        found += _norm("mlp_post_norm", after, block.hidden)
    return tuple(found)


def _mixer(mixer: Mixer, hidden: int) -> Specs:
    if isinstance(mixer, Attention):
        return _attention(mixer, hidden, "")
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, hidden)
    if isinstance(mixer, StateSpace):
        return _state_space(mixer, hidden)
    return _delta_rule(mixer, hidden)


def _attention(spec: Attention, hidden: int, prefix: str) -> Specs:
    found: list[ParameterSpec] = []
    widths = [("query", spec.query_dim), ("key", spec.kv_dim), ("value", spec.kv_dim)]
    if spec.output_gate:
        widths.append(("output_gate", spec.query_dim))
    for name, width in widths:
        found += _column(f"{prefix}{name}", width, hidden, spec.qkv_bias)
    if spec.qk_norm:
        found += [
            ParameterSpec(
                name=f"{prefix}{name}.weight",
                shape=(spec.head_dim,),
                initial="ones",
                partial_gradient="always",
            )
            for name in ("query_norm", "key_norm")
        ]
    if spec.sinks:
        found.append(_per_head(f"{prefix}sinks", spec.heads))
    if spec.relative_buckets:
        shape = (spec.relative_buckets, spec.heads)
        found.append(ParameterSpec(name=f"{prefix}relative.weight", shape=shape, split_dim=1))
    return (*found, *_row(f"{prefix}output", hidden, spec.query_dim, spec.out_bias))


def _latent(spec: LatentAttention, hidden: int) -> Specs:
    """The down projections make what all heads share and are not split."""
    found: list[ParameterSpec] = []
    queries = spec.heads * spec.key_dim
    if spec.query_rank is None:
        found += _column("query", queries, hidden, bias=False)
    else:
        found += _whole("query_down", spec.query_rank, hidden, spec.bias)
        found += _norm("query_norm", "rmsnorm", spec.query_rank)
        found += _column("query_up", queries, spec.query_rank, bias=False)
    found += _whole("kv_down", spec.kv_rank + spec.rope_dim, hidden, spec.bias)
    found += _norm("kv_norm", "rmsnorm", spec.kv_rank)
    width = spec.heads * (spec.nope_dim + spec.value_dim)
    found += _column("kv_up", width, spec.kv_rank, bias=False)
    return (*found, *_row("output", hidden, spec.heads * spec.value_dim, spec.bias))


def _convolution(channels: int, kernel: int, bias: bool) -> Specs:
    """A causal convolution of each channel on its own."""
    weight = ParameterSpec(name="conv.weight", shape=(channels, kernel), split_dim=0)
    offset = ParameterSpec(name="conv.bias", shape=(channels,), split_dim=0, initial="zeros")
    return (weight, offset) if bias else (weight,)


def _state_space(spec: StateSpace, hidden: int) -> Specs:
    return (
        *_column("gate", spec.inner_dim, hidden, spec.bias),
        *_column("mixed", spec.conv_dim, hidden, spec.bias),
        *_column("step", spec.heads, hidden, spec.bias),
        *_convolution(spec.conv_dim, spec.conv_kernel, spec.conv_bias),
        *(_per_head(name, spec.heads) for name in ("step_bias", "decay", "skip")),
        *_norm("mixer_norm", "rmsnorm", spec.inner_dim, split=True),
        *_row("output", hidden, spec.inner_dim, spec.bias),
    )


def _delta_rule(spec: DeltaRule, hidden: int) -> Specs:
    return (
        *_column("mixed", spec.conv_dim, hidden, bias=False),
        *_column("gate", spec.inner_dim, hidden, bias=False),
        *_column("rates", 2 * spec.value_heads, hidden, bias=False),
        *_convolution(spec.conv_dim, spec.conv_kernel, bias=False),
        *(_per_head(name, spec.value_heads) for name in ("step_bias", "decay")),
        ParameterSpec(
            name="mixer_norm.weight",
            shape=(spec.value_dim,),
            initial="ones",
            partial_gradient="always",
        ),
        *_row("output", hidden, spec.inner_dim, bias=False),
    )


def _mlp(mlp: Mlp, hidden: int, prefix: str = "") -> Specs:
    found: list[ParameterSpec] = []
    for name in ("gate", "up") if mlp.gated else ("up",):
        found += _column(f"{prefix}{name}", mlp.ffn, hidden, mlp.bias)
    return (*found, *_row(f"{prefix}down", hidden, mlp.ffn, mlp.bias))


def _moe(block: BlockLayer) -> Specs:
    """Router, experts as tensors with a first dimension of experts, shared experts."""
    moe, hidden = block.mlp, block.hidden
    if not isinstance(moe, Moe):
        return ()
    found = [*_whole("router", moe.experts, hidden, moe.router_bias)]
    inner = hidden if moe.latent is None else moe.latent
    if moe.latent is not None:
        found += _whole("latent_down", inner, hidden, moe.bias)
        found += _whole("latent_up", hidden, inner, moe.bias)
    for name in ("gate", "up") if moe.gated else ("up",):
        found += _experts(f"experts_{name}", (moe.experts, moe.ffn, inner), 1, moe.bias)
    found += _experts("experts_down", (moe.experts, inner, moe.ffn), 2, moe.bias)
    if moe.shared_ffn:
        shared = Mlp(ffn=moe.shared_ffn, activation=moe.activation, bias=moe.bias)
        found += _mlp(shared, hidden, "shared_")
    if moe.shared_gate:
        found.append(_replicated("shared_expert_gate.weight", (1, hidden)))
    return tuple(found)


def _experts(name: str, shape: tuple[int, int, int], split_dim: int, bias: bool) -> Specs:
    """The weights of all experts, (experts, out, in)."""
    weight = ParameterSpec(name=f"{name}.weight", shape=shape, split_dim=split_dim, expert=True)
    if not bias:
        return (weight,)
    offset = ParameterSpec(
        name=f"{name}.bias",
        shape=shape[:2],
        split_dim=1 if split_dim == 1 else None,
        initial="zeros",
        expert=True,
    )
    return (weight, offset)
