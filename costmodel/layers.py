"""Whole layers as symbolic work: the embedding, the block, the head and the seams between them."""

from __future__ import annotations

from collections.abc import Callable

from ..spec.dense import dense_parts
from ..spec.errors import NotBuiltError
from ..spec.groups import RankGroup, batch_steps, tensor_group
from ..spec.model import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from ..spec.parameters import split_range
from ..spec.strategy import LayerStrategy
from .ops import (
    OpContext,
    activation,
    column_linear,
    norm,
    residual_add,
    rope,
    row_linear,
    split_heads,
)
from .ops_attention import attention
from .ops_vocab import cross_entropy, embedding
from .tape import Node, Tape, Value


def run_layer(c: OpContext, layer: Layer, strategy: LayerStrategy, x: Value, seq_len: int) -> Value:
    """The symbolic forward of a layer; nodes for its backward are left on the tape.

    Args:
        c: context of the layer's operations.
        layer: what to run.
        strategy: its decisions.
        x: tokens (seq, batch) for an embedding, else activations (seq, batch, hidden).
        seq_len: tokens of a sample.
    """
    if isinstance(layer, EmbeddingLayer):
        rows = local_vocab(layer.vocab, strategy.tp, c.stack.vocab_multiple)
        positions = seq_len if layer.positions is None else layer.positions
        return embedding(c, layer, rows, positions, x)
    if isinstance(layer, HeadLayer):
        return _head(c, layer, strategy, x)
    if isinstance(layer, BlockLayer):
        return _block(c, layer, strategy, x)
    raise NotBuiltError(f"a {layer.kind} layer is not lowered yet", "use a dense decoder")


def local_vocab(vocab: int, tp: int, multiple: int) -> int:
    """Vocabulary rows on the fullest tensor-parallel rank, padding included."""
    padded = -(-vocab // (multiple * tp)) * multiple * tp if multiple > 1 else vocab
    start, stop = split_range(padded, tp, 0)
    return stop - start


def _head(c: OpContext, layer: HeadLayer, strategy: LayerStrategy, x: Value) -> Value:
    columns = local_vocab(layer.vocab, strategy.tp, c.stack.vocab_multiple)
    if layer.norm is not None:
        x = norm(c, x, layer.norm)
    (logits,) = column_linear(c, x, (columns,), bias=False, fused=False)
    del x
    targets = c.tape.constant((logits.elements // columns, 1), "int64")
    return cross_entropy(c, logits, targets)


def _block(c: OpContext, layer: BlockLayer, strategy: LayerStrategy, x: Value) -> Value:
    spec, mlp = dense_parts(layer)

    def body(x: Value) -> tuple[Value, ...]:
        x = residual_add(c, x, _attention(c, layer, strategy, x), spec.out_bias)
        return x, _mlp(c, layer, strategy, x)

    def finish(x: Value, branch: Value) -> Value:
        return residual_add(c, x, branch, mlp.bias)

    if strategy.recompute == "full":
        return recomputed(c, body, finish, x)
    return finish(*body(x))


def _attention(c: OpContext, layer: BlockLayer, strategy: LayerStrategy, x: Value) -> Value:
    spec, tp = dense_parts(layer)[0], strategy.tp
    query, key, value = column_linear(
        c,
        norm(c, x, layer.norm),
        (spec.query_dim // tp, spec.kv_dim // tp, spec.kv_dim // tp),
        spec.qkv_bias,
        c.stack.fusion.qkv,
    )
    ordered = spec.rotary or spec.qk_norm
    query = _positioned(c, layer, split_heads(c, query, spec.heads // tp, ordered))
    key = _positioned(c, layer, split_heads(c, key, spec.kv_heads // tp, ordered))
    repeats = c.stack.attention == "unfused" and spec.heads > spec.kv_heads
    value = split_heads(c, value, spec.kv_heads // tp, repeats)
    if strategy.recompute == "selective":
        mixed = recomputed(c, lambda *qkv: (attention(c, *qkv),), None, query, key, value)
    else:
        mixed = attention(c, query, key, value)
    del query, key, value
    return row_linear(c, mixed, layer.hidden, spec.out_bias)


def _positioned(c: OpContext, layer: BlockLayer, x: Value) -> Value:
    spec = dense_parts(layer)[0]
    if spec.qk_norm:
        x = norm(c, x, "rmsnorm")
    return rope(c, x) if spec.rotary else x


def _mlp(c: OpContext, layer: BlockLayer, strategy: LayerStrategy, x: Value) -> Value:
    mlp = dense_parts(layer)[1]
    local = mlp.ffn // strategy.tp
    widths = (local, local) if mlp.gated else (local,)
    projected = column_linear(c, norm(c, x, layer.norm), widths, mlp.bias, c.stack.fusion.gate_up)
    hidden = activation(c, projected, mlp.activation, mlp.bias)
    del projected
    return row_linear(c, hidden, layer.hidden, mlp.bias)


Finish = Callable[..., Value]


def recomputed(
    c: OpContext,
    function: Callable[..., tuple[Value, ...]],
    finish: Finish | None,
    *inputs: Value,
) -> Value:
    """Run ``finish(*function(*inputs))`` keeping only the inputs; run it again going backward.

    ``finish`` saves nothing and hands its gradient to each of its inputs; a stack that stops
    early does not repeat it. None means that the function has one result and that is it.
    """
    t = c.tape
    with t.not_recording():
        results = function(*inputs)
        out = finish(*results) if finish is not None else results[0]
        del results

    producers_before = [value.producer for value in inputs]

    def backward(grad: Value) -> tuple[Value | None, ...]:
        entries = [Node((producer,), 1, _pass_on) for producer in producers_before]
        start = t.node_count
        with t.recomputing():
            again = function(*(_leaf(x, e) for x, e in zip(inputs, entries, strict=True)))
            if finish is not None and not c.stack.recompute_stops_early:
                finish(*again)
        producers = [value.producer for value in again]
        del again
        nodes = t.take_nodes(start)
        for producer in producers:
            if producer is not None:
                t.add_gradient(producer, grad)
        t.run_next([*entries, *nodes])
        return tuple(None for _ in inputs)

    t.record((out,), inputs, backward)
    return out


def _leaf(value: Value, entry: Node) -> Value:
    leaf = Value(value.shape, value.dtype, value.storage)
    leaf.producer = (entry, 0)
    return leaf


def _pass_on(grad: Value) -> tuple[Value | None, ...]:
    """The entry of a recomputed function hands its gradient to what made the input."""
    return (grad,)


def move(c: OpContext, x: Value, before: LayerStrategy, after: LayerStrategy) -> Value:
    """Activations in the layout of ``before`` brought into that of ``after``."""
    if (before.tp, before.megatron_sp) == (after.tp, after.megatron_sp):
        return x
    if before.megatron_sp:
        x = _step(c, x, tensor_group(before), joins=True, dim=0)
    steps = batch_steps(before.tp, after.tp)
    cuts = len(steps) == 2 or before.tp > after.tp
    for group in steps:
        x = _step(c, x, group, joins=not cuts, dim=1)
        cuts = False
    if after.megatron_sp:
        x = _step(c, x, tensor_group(after), joins=False, dim=0)
    return x


def _step(c: OpContext, x: Value, group: RankGroup, joins: bool, dim: int) -> Value:
    """One gather (or cut) along ``dim``; going backward it is the other one."""
    out = (_join if joins else _cut)(c.tape, x, group, dim)

    def backward(grad: Value) -> tuple[Value | None, ...]:
        return ((_cut if joins else _join)(c.tape, grad, group, dim),)

    c.tape.record((out,), (x,), backward)
    return out


def _join(t: Tape, x: Value, group: RankGroup, dim: int) -> Value:
    shape = list(x.shape)
    shape[dim] *= group.size
    parts = t.new(tuple(shape), x.dtype)
    t.collective("all_gather", group, parts)
    if dim == 0:
        return parts
    return t.kernel("copy", (parts,), t.like(parts))


def _cut(t: Tape, x: Value, group: RankGroup, dim: int) -> Value:
    shape = list(x.shape)
    shape[dim] //= group.size
    out = t.new(tuple(shape), x.dtype)
    return t.kernel("copy", (out,), out)
