"""Multi-head attention: projections, positions, core, gate and output."""

from __future__ import annotations

from ...spec.model.mixers import Attention
from ...spec.strategy import LayerStrategy
from ..ops.context import OpContext, norm, split_heads
from ..ops.linear import column_linear, column_projections, row_linear
from ..ops.position import rope_both
from ..ops.projections import Projections
from ..symbolic.tape import SymbolicTensor
from .core_attention import core_attention


def attention_mixer(
    c: OpContext, spec: Attention, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Self-attention; a :data:`mixer.LowerMixer`."""
    group = attention_projections(c, spec, strategy)
    projected = [column_projections(c, x, (group,))]
    del x
    mixed = attended(c, spec, strategy, projected.pop())
    return row_linear(c, mixed, hidden, spec.out_bias, name="output")


def attention_projections(c: OpContext, spec: Attention, strategy: LayerStrategy) -> Projections:
    """Projections of self-attention's input."""
    tp = strategy.weight_split
    widths, names = [spec.query_dim, spec.kv_dim, spec.kv_dim], ["query", "key", "value"]
    if spec.keys_as_values:
        widths, names = widths[:2], names[:2]
    if spec.output_gate:
        widths, names = [*widths, spec.query_dim], [*names, "output_gate"]
    local = tuple(width // tp for width in widths)
    return Projections(local, spec.qkv_bias, c.stack.fusion.qkv, tuple(names))


def attended(
    c: OpContext, spec: Attention, strategy: LayerStrategy, projected: tuple[SymbolicTensor, ...]
) -> SymbolicTensor:
    """Heads' outputs from the projections of :func:`attention_projections`."""
    query, key, *more = projected
    del projected
    value = key if spec.keys_as_values else more.pop(0)
    query, key = _positioned(c, spec, query, key)
    value = _value_heads(c, spec, spec.kv_heads // strategy.weight_split, value)
    mixed = core_attention(c, strategy, spec, query, key, value)
    del query, key, value
    return _gated_output(c, mixed, more.pop()) if more else mixed


def cross_attention(
    c: OpContext,
    spec: Attention,
    hidden: int,
    strategy: LayerStrategy,
    x: SymbolicTensor,
    source: SymbolicTensor,
) -> SymbolicTensor:
    """Attention of ``x`` to another tower's output ``source``, of its own length."""
    tp = strategy.weight_split
    (query,) = column_linear(
        c, x, (spec.query_dim // tp,), spec.qkv_bias, False, names=("cross_query",)
    )
    del x
    widths = (spec.kv_dim // tp, spec.kv_dim // tp)
    names = ("cross_key", "cross_value")
    key, value = column_linear(c, source, widths, spec.qkv_bias, c.stack.fusion.qkv, names=names)
    query, key = _positioned(c, spec, query, key)
    value = _value_heads(c, spec, spec.kv_heads // tp, value)
    mixed = core_attention(c, strategy, spec, query, key, value)
    del query, key, value
    return row_linear(c, mixed, hidden, spec.out_bias, name="cross_output")


def _positioned(
    c: OpContext, spec: Attention, query: SymbolicTensor, key: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    if spec.qk_norm_joint:
        query, key = _joint_norms(c, query, key)
    query = _heads(c, spec, spec.heads // c.tp, query)
    key = _heads(c, spec, spec.kv_heads // c.tp, key)
    repeats = c.stack.attention == "unfused" and spec.heads > spec.kv_heads
    if not spec.rotary:
        return query, key
    if c.stack.fusion.in_place and not spec.qk_norm:  # what is kept must not be turned in place
        query, key = (
            _copied(c, x) if c.tape.keeps(name) else x
            for name, x in (("query", query), ("key", key))
        )
    return rope_both(c, query, key, spec.rotary_dim, repeats)


def _copied(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    out = c.tape.kernel("copy", (x,), c.tape.like(x))
    c.tape.record((out,), (x,), lambda grad: (grad,))
    return out


def _heads(c: OpContext, spec: Attention, heads: int, x: SymbolicTensor) -> SymbolicTensor:
    reads_any_order = spec.qk_norm and not c.stack.fusion.norm
    x = split_heads(c, x, heads, ordered=spec.rotary or reads_any_order)
    if not spec.qk_norm or spec.qk_norm_joint:
        return x
    return norm(c, x, "rmsnorm", weighted=spec.qk_norm_weight)


def _joint_norms(
    c: OpContext, query: SymbolicTensor, key: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Norms over all heads; ranks that split them sum a statistic of each row, each way."""
    query, key = norm(c, query, "rmsnorm"), norm(c, key, "rmsnorm")
    if c.tp == 1:
        return query, key
    rows = c.tape.constant((2, query.shape[0] * query.shape[1]), "fp32")
    c.tape.collective("all_reduce", c.tensor_group, rows)

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        c.tape.collective("all_reduce", c.tensor_group, rows)
        return grads

    outs = tuple(SymbolicTensor(x.shape, x.dtype, x.storage) for x in (query, key))
    c.tape.record(outs, (query, key), backward)
    return outs[0], outs[1]


def _value_heads(c: OpContext, spec: Attention, heads: int, x: SymbolicTensor) -> SymbolicTensor:
    """A projection as value heads; repeating them orders their gradient."""
    repeats = c.stack.attention == "unfused" and spec.heads > spec.kv_heads
    if not spec.value_norm:
        return split_heads(c, x, heads, repeats)
    heads_in_order = split_heads(c, x, heads, repeats or not c.stack.fusion.norm)
    return norm(c, heads_in_order, "rmsnorm", weighted=False)


def _gated_output(c: OpContext, mixed: SymbolicTensor, gate: SymbolicTensor) -> SymbolicTensor:
    """``mixed · sigmoid(gate)``; keeps both factors."""
    t = c.tape
    sigmoid = t.kernel("sigmoid", (gate,), t.like(gate))
    out = t.kernel("mul", (mixed, sigmoid), t.like(mixed))
    saved = SymbolicTensor(mixed.shape, mixed.dtype, mixed.storage)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_mixed = t.kernel("mul", (grad, sigmoid), t.like(saved))
        grad_sigmoid = t.kernel("mul", (grad, saved), t.like(sigmoid))
        return (grad_mixed, t.kernel("sigmoid_backward", (grad_sigmoid, sigmoid), t.like(sigmoid)))

    t.record((out,), (mixed, gate), backward)
    return out
