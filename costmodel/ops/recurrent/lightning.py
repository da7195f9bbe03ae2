"""Lightning attention (MiniMax-01, arXiv:2501.08313, section 2.2), plain or in a fused kernel.

A head's state, D x D, decays at a fixed rate. Q tokens at a time: with T tokens a head does

    scores inside a chunk      Q·Kᵀ          2·T·Q·D
    their values               scores·V      2·T·Q·D
    output of earlier chunks   Q·state       2·T·D·D
    state that a chunk adds    Kᵀ·V          2·T·D·D

Worked number: T = 4096, Q = 256, D = 128, 64 heads: 34 + 17 GFLOP, each twice: 103 GFLOP.
"""

from __future__ import annotations

from ....spec.model.mixers import LightningAttention
from ....spec.strategy import LayerStrategy
from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext, norm
from ..eager import add, alias, copied, mul, narrowed, product, split, unary
from ..linear import column_linear, row_linear
from ..recompute import recomputed

STATE_PASSES = 2
"""Chunk states are written once and read once."""


def lightning_attention(
    c: OpContext,
    spec: LightningAttention,
    hidden: int,
    strategy: LayerStrategy,
    x: SymbolicTensor,
) -> SymbolicTensor:
    """Projections and their activation, scan, norm, gate and output projection."""
    t, width = c.tape, spec.inner_dim // strategy.tp
    names = ("query", "key", "value")
    projected = column_linear(c, x, (width,) * 3, bias=False, fused=True, names=names)
    (gate,) = column_linear(c, x, (width,), bias=False, fused=False, names=("output_gate",))
    del x
    joined = _joined(t, projected)
    del projected

    def run(joined: SymbolicTensor) -> tuple[SymbolicTensor, ...]:
        return (_scanned(c, spec, joined),)

    if strategy.recompute == "selective" and c.stack.attention != "flash":
        out = recomputed(c, run, None, joined)
    else:
        out = run(joined)[0]
    del joined
    out = _norm_of_all_heads(c, out)
    out = mul(t, unary(t, "sigmoid", gate, "output"), out)
    del gate
    return row_linear(c, out, hidden, bias=False, name="output")


def _joined(t: Tape, parts: tuple[SymbolicTensor, ...]) -> SymbolicTensor:
    """Queries, keys and values as the one product made them; no work either way."""
    first = parts[0]
    shape = (*first.shape[:-1], sum(part.shape[-1] for part in parts))
    out = SymbolicTensor(shape, first.dtype, first.storage)
    shapes = [part.shape for part in parts]

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return tuple(SymbolicTensor(part, grad.dtype, grad.storage) for part in shapes)

    t.record((out,), parts, backward)
    return out


def _scanned(c: OpContext, spec: LightningAttention, joined: SymbolicTensor) -> SymbolicTensor:
    if c.stack.attention == "flash":
        return _fused_scan(c, spec, joined)
    t, (seq, batch, width) = c.tape, joined.shape
    parts = split(t, unary(t, "silu", joined, "input"), (width // 3,) * 3)
    del joined
    heads = width // 3 // spec.head_dim
    return _plain_scan(t, spec, (seq, batch, heads), parts)


def _plain_scan(
    t: Tape,
    spec: LightningAttention,
    sizes: tuple[int, int, int],
    parts: tuple[SymbolicTensor, ...],
) -> SymbolicTensor:
    """Chunk by chunk, each operation its own kernel; (seq, batch, inner)."""
    (seq, batch, heads), dim, dtype = sizes, spec.head_dim, parts[0].dtype
    state = t.kernel("zeros", (), t.new((batch * heads, dim, dim), dtype))
    results = []
    for start in range(0, seq, spec.chunk):
        length = min(spec.chunk, seq - start)
        shape = (batch * heads, length, dim)
        query, key, value = (narrowed(t, x, shape) for x in parts)
        mixed, state = _one_chunk(t, (query, key, value), state)
        results.append(mixed)
        del mixed
    return _concatenated(t, results, (seq, batch, heads * dim))


def _one_chunk(
    t: Tape, inputs: tuple[SymbolicTensor, ...], state: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """A chunk's results and the state after it; decays are tables, not trained."""
    query, key, value = inputs
    rows, length, dim = query.shape
    heads_decay, decay = (t.constant((rows, length, n), "fp32") for n in (1, length))
    sizes = (rows, length, dim, length)
    scores = product(t, copied(t, query, query.shape), copied(t, key, key.shape), sizes)
    scores = _decayed(t, scores, decay)
    within = product(t, scores, copied(t, value, value.shape), (rows, length, length, dim))
    from_state = product(
        t,
        copied(t, _decayed(t, query, heads_decay), query.shape),
        state,
        (rows, length, dim, dim),
    )
    decayed_key = copied(t, _decayed(t, key, heads_decay), key.shape)
    added = product(t, decayed_key, copied(t, value, value.shape), (rows, dim, length, dim))
    kept = _decayed(t, state, t.constant((rows, 1, 1), "fp32"))
    return add(t, from_state, within), add(t, kept, added)


def _decayed(t: Tape, x: SymbolicTensor, table: SymbolicTensor) -> SymbolicTensor:
    """``x`` times a table of decays, which alone the backward reads."""
    out = t.kernel("mul", (x, table), t.like(x))
    if x.producer is not None:
        t.record((out,), (x,), lambda grad: (t.kernel("mul", (grad, table), t.like(grad)),))
    return out


def _concatenated(t: Tape, parts: list[SymbolicTensor], shape: tuple[int, ...]) -> SymbolicTensor:
    """All chunks' results, then in the order of tokens: two copies."""
    joined = t.kernel("copy", tuple(parts), t.new(shape, parts[0].dtype))
    out = t.kernel("copy", (joined,), t.like(joined))
    shapes = [part.shape for part in parts]

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return tuple(SymbolicTensor(part, grad.dtype, grad.storage) for part in shapes)

    t.record((out,), tuple(parts), backward)
    return out


def _fused_scan(c: OpContext, spec: LightningAttention, joined: SymbolicTensor) -> SymbolicTensor:
    """Activation and scan in a kernel each; the backward makes scores and states again.

    As lightning attention's kernels: kept are the activated projections and their input.
    """
    t, (seq, batch, width) = c.tape, joined.shape
    heads, dim, q = width // 3 // spec.head_dim, spec.head_dim, spec.chunk
    shape = (batch, heads, heads, seq, dim, dim, q)
    rows = seq * batch * heads
    scores_flops, state_flops = 2 * rows * q * dim, 2 * rows * dim * dim
    flops = 2 * scores_flops + 2 * state_flops
    activated = unary(t, "silu", joined, "input")
    del joined
    out = t.new((seq, batch, width // 3), c.dtype)

    def run(op: str, operands: tuple[SymbolicTensor, ...], flops: int) -> None:
        states = t.new((batch * -(-seq // q), heads, dim * dim), "fp32")
        traffic = sum(x.size_bytes for x in operands) + STATE_PASSES * states.size_bytes
        t.shaped_kernel(op, shape, c.dtype, flops, traffic)

    run("lightning_scan", (activated, out), flops)
    saved = alias(activated)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_joined = t.like(saved)
        total = 2 * flops + scores_flops + state_flops
        run("lightning_scan_backward", (grad, saved, grad_joined), total)
        return (grad_joined,)

    t.record((out,), (activated,), backward)
    return out


def _norm_of_all_heads(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """An RMS norm over all heads; ranks that split them sum a statistic a row, each way."""
    x = norm(c, x, "rmsnorm")
    if c.tp == 1:
        return x
    rows = c.tape.constant((x.shape[0] * x.shape[1],), "fp32")
    c.tape.collective("all_reduce", c.tensor_group, rows)
    out = SymbolicTensor(x.shape, x.dtype, x.storage)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        c.tape.collective("all_reduce", c.tensor_group, rows)
        return (grad,)

    c.tape.record((out,), (x,), backward)
    return out


__all__ = ["lightning_attention"]
