"""Parameters of a residual block: norms, token mixer, feed-forward part."""

from __future__ import annotations

from dataclasses import replace

from .feed_forward import Mlp, Moe
from .layers import BlockLayer, NormKind
from .mixers import (
    Attention,
    DeltaRule,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mixer,
    ParallelMixers,
    ShortConvolution,
    StateSpace,
)
from .parameter_spec import (
    ParameterSpec,
    ParameterSpecs,
    column,
    norm,
    per_head,
    replicated,
    replicated_linear,
    row,
)

STATE_PREFIX = "state_"
"""Of the names of a state space that works beside attention."""


def block_parameters(block: BlockLayer) -> ParameterSpecs:
    """Parameters of a block.

    Norms stand before their part, after it, or around it (sandwich).
    """
    specs: list[ParameterSpec] = []
    before = None if block.norm_placement == "after" else block.norm
    after = block.norm if block.norm_placement in ("after", "sandwich") else None
    if block.attention is not None:
        specs += norm("attention_norm", before, block.hidden)
        specs += _mixer(block.attention, block.hidden)
        specs += norm("attention_post_norm", after, block.hidden)
    if block.cross_attention is not None:
        specs += norm("cross_norm", before, block.hidden)
        specs += _attention(block.cross_attention, block.hidden, "cross_")
    if block.mlp is not None:
        shared = block.shared_norm and block.attention is not None
        specs += norm("mlp_norm", None if shared else before, block.hidden)
        specs += _mlp(block.mlp, block.hidden) if isinstance(block.mlp, Mlp) else _moe(block)
        specs += norm("mlp_post_norm", after, block.hidden)
    return tuple(specs)


def _mixer(mixer: Mixer, hidden: int) -> ParameterSpecs:
    if isinstance(mixer, Attention):
        return _attention(mixer, hidden, "")
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, hidden)
    if isinstance(mixer, StateSpace):
        return _state_space(mixer, hidden)
    if isinstance(mixer, KimiDeltaAttention):
        return _kimi_delta(mixer, hidden)
    if isinstance(mixer, LightningAttention):
        return _lightning(mixer, hidden)
    if isinstance(mixer, ShortConvolution):
        return _short_convolution(mixer, hidden)
    if isinstance(mixer, ParallelMixers):
        state_space = _state_space(mixer.state_space, hidden, STATE_PREFIX)
        return (*_attention(mixer.attention, hidden, ""), *state_space)
    return _delta_rule(mixer, hidden)


def _attention(spec: Attention, hidden: int, prefix: str) -> ParameterSpecs:
    specs: list[ParameterSpec] = []
    widths = [("query", spec.query_dim), ("key", spec.kv_dim), ("value", spec.kv_dim)]
    if spec.keys_as_values:
        widths.pop()
    if spec.output_gate:
        widths.append(("output_gate", spec.query_dim))
    for name, width in widths:
        specs += column(f"{prefix}{name}", width, hidden, spec.qkv_bias)
    if spec.qk_norm_joint:
        specs += norm(f"{prefix}query_norm", "rmsnorm", spec.query_dim, split=True)
        specs += norm(f"{prefix}key_norm", "rmsnorm", spec.kv_dim, split=True)
    elif spec.qk_norm and spec.qk_norm_weight:
        specs += [
            ParameterSpec(
                name=f"{prefix}{name}.weight",
                shape=(spec.head_dim,),
                initial="ones",
                partial_gradient="always",
            )
            for name in ("query_norm", "key_norm")
        ]
    if spec.sinks:
        specs.append(per_head(f"{prefix}sinks", spec.heads))
    if spec.relative_buckets:
        shape = (spec.relative_buckets, spec.heads)
        specs.append(ParameterSpec(name=f"{prefix}relative.weight", shape=shape, split_dim=1))
    return (*specs, *row(f"{prefix}output", hidden, spec.query_dim, spec.out_bias))


def _latent(spec: LatentAttention, hidden: int) -> ParameterSpecs:
    """The down projections, whose outputs all heads share, are not split."""
    specs: list[ParameterSpec] = []
    queries = spec.heads * spec.key_dim
    if spec.indexer is not None and spec.query_rank is not None:
        width = spec.indexer.heads * spec.indexer.head_dim
        specs += replicated_linear("index_query", width, spec.query_rank, bias=False)
        specs += replicated_linear("index_key", spec.indexer.head_dim, hidden, bias=False)
        specs += norm("index_norm", "layernorm", spec.indexer.head_dim)
        specs += replicated_linear("index_weights", spec.indexer.heads, hidden, bias=False)
    if spec.query_rank is None:
        specs += column("query", queries, hidden, bias=False)
    else:
        specs += replicated_linear("query_down", spec.query_rank, hidden, spec.bias)
        specs += norm("query_norm", "rmsnorm", spec.query_rank)
        specs += column("query_up", queries, spec.query_rank, bias=False)
    specs += replicated_linear("kv_down", spec.kv_rank + spec.rope_dim, hidden, spec.bias)
    specs += norm("kv_norm", "rmsnorm", spec.kv_rank)
    width = spec.heads * (spec.nope_dim + spec.value_dim)
    specs += column("kv_up", width, spec.kv_rank, bias=False)
    return (*specs, *row("output", hidden, spec.heads * spec.value_dim, spec.bias))


def _convolution(channels: int, kernel: int, bias: bool, prefix: str = "") -> ParameterSpecs:
    name = f"{prefix}conv"
    weight = ParameterSpec(name=f"{name}.weight", shape=(channels, kernel), split_dim=0)
    offset = ParameterSpec(name=f"{name}.bias", shape=(channels,), split_dim=0, initial="zeros")
    return (weight, offset) if bias else (weight,)


def _state_space(spec: StateSpace, hidden: int, prefix: str = "") -> ParameterSpecs:
    kind: NormKind | None = None if spec.norm == "none" else "rmsnorm"
    widths = (("gate", spec.inner_dim), ("mixed", spec.conv_dim), ("step", spec.heads))
    return (
        *(p for name, width in widths for p in column(f"{prefix}{name}", width, hidden, spec.bias)),
        *_convolution(spec.conv_dim, spec.conv_kernel, spec.conv_bias, prefix),
        *(per_head(f"{prefix}{name}", spec.heads) for name in ("step_bias", "decay", "skip")),
        *norm(f"{prefix}mixer_norm", kind, spec.inner_dim, split=True),
        *row(f"{prefix}output", hidden, spec.inner_dim, spec.bias),
    )


def _kimi_delta(spec: KimiDeltaAttention, hidden: int) -> ParameterSpecs:
    inner, dim = spec.inner_dim, spec.head_dim
    low_rank = [
        (
            *replicated_linear(f"{name}_down", dim, hidden, bias=False),
            *column(f"{name}_up", inner, dim, bias=False),
        )
        for name in ("decay", "gate")
    ]
    return (
        *(p for name in ("query", "key", "value") for p in column(name, inner, hidden, bias=False)),
        *_convolution(3 * inner, spec.conv_kernel, bias=False),
        *low_rank[0],
        ParameterSpec(name="step_bias", shape=(inner,), split_dim=0),
        per_head("decay", spec.heads),
        *column("rates", spec.heads, hidden, bias=False),
        *low_rank[1],
        ParameterSpec(
            name="mixer_norm.weight", shape=(dim,), initial="ones", partial_gradient="always"
        ),
        *row("output", hidden, inner, bias=False),
    )


def _lightning(spec: LightningAttention, hidden: int) -> ParameterSpecs:
    names = ("query", "key", "value", "output_gate")
    return (
        *(p for name in names for p in column(name, spec.inner_dim, hidden, bias=False)),
        *norm("mixer_norm", "rmsnorm", spec.inner_dim, split=True),
        *row("output", hidden, spec.inner_dim, bias=False),
    )


def _short_convolution(spec: ShortConvolution, hidden: int) -> ParameterSpecs:
    return (
        *column("in_gate", spec.channels, hidden, spec.bias),
        *column("out_gate", spec.channels, hidden, spec.bias),
        *column("mixed", spec.channels, hidden, spec.bias),
        *_convolution(spec.channels, spec.conv_kernel, spec.bias),
        *row("output", hidden, spec.channels, spec.bias),
    )


def _delta_rule(spec: DeltaRule, hidden: int) -> ParameterSpecs:
    return (
        *column("mixed", spec.conv_dim, hidden, bias=False),
        *column("gate", spec.inner_dim, hidden, bias=False),
        *column("rates", 2 * spec.value_heads, hidden, bias=False),
        *_convolution(spec.conv_dim, spec.conv_kernel, bias=False),
        *(per_head(name, spec.value_heads) for name in ("step_bias", "decay")),
        ParameterSpec(
            name="mixer_norm.weight",
            shape=(spec.value_dim,),
            initial="ones",
            partial_gradient="always",
        ),
        *row("output", hidden, spec.inner_dim, bias=False),
    )


def _mlp(mlp: Mlp, hidden: int, prefix: str = "") -> ParameterSpecs:
    specs: list[ParameterSpec] = []
    for name in ("gate", "up") if mlp.gated else ("up",):
        specs += column(f"{prefix}{name}", mlp.ffn, hidden, mlp.bias)
    return (*specs, *row(f"{prefix}down", hidden, mlp.ffn, mlp.bias))


def _moe(block: BlockLayer) -> ParameterSpecs:
    """Router, experts as tensors with a first dimension of experts, shared experts."""
    moe, hidden = block.mlp, block.hidden
    if not isinstance(moe, Moe):
        return ()
    specs = [*_router(moe, hidden)]
    inner = hidden if moe.latent is None else moe.latent
    if moe.latent is not None:
        specs += replicated_linear("latent_down", inner, hidden, moe.bias)
        specs += replicated_linear("latent_up", hidden, inner, moe.bias)
    for name in ("gate", "up") if moe.gated else ("up",):
        specs += _experts(f"experts_{name}", (moe.experts, moe.ffn, inner), 1, moe.bias)
    specs += _experts("experts_down", (moe.experts, inner, moe.ffn), 2, moe.bias)
    if moe.shared_ffn:
        shared = Mlp(ffn=moe.shared_ffn, activation=moe.activation, bias=moe.bias)
        specs += _mlp(shared, hidden, "shared_")
    if moe.shared_gate:
        specs.append(replicated("shared_expert_gate.weight", (1, hidden)))
    return tuple(specs)


def _router(moe: Moe, hidden: int) -> ParameterSpecs:
    """The router; X-MoE's compares in a width of its own, at a learned temperature."""
    if moe.gate_width is None:
        return replicated_linear("router", moe.router_outputs, hidden, moe.router_bias)
    temperature = replicated("router_temperature", (1,))
    return (
        *replicated_linear("router_down", moe.gate_width, hidden, moe.router_bias),
        replicated("router.weight", (moe.experts, moe.gate_width)),
        replace(temperature, initial="zeros"),
    )


def _experts(name: str, shape: tuple[int, int, int], split_dim: int, bias: bool) -> ParameterSpecs:
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
