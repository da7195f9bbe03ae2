"""The scan of Kimi delta attention, in eager torch or in fused kernels."""

from __future__ import annotations

from ....spec.model.mixers import DeltaRule, KimiDeltaAttention
from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext
from ..eager import add, copied, masked, mean, mul, narrowed, product, unary
from .delta_rule_scan import store
from .fused_scans import delta_rule_scan


def plain_scan(
    t: Tape,
    chunk: int,
    parts: tuple[SymbolicTensor, SymbolicTensor, SymbolicTensor],
    decay: SymbolicTensor,
    rate: SymbolicTensor,
) -> SymbolicTensor:
    """Chunked scan of fp32 inputs.

    Args:
        t: the tape.
        chunk: tokens per chunk.
        parts: queries and keys of unit length, values; (seq, batch, heads, width).
        decay: logarithm of the retained share of each channel, as ``parts``.
        rate: learning rate, (seq, batch, heads).

    Returns:
        (seq, batch, heads, width).
    """
    seq, batch, heads, width = decay.shape
    chunks, states = -(-seq // chunk), batch * heads
    shape = (states * chunks, chunk, width)
    query, key, value, decay = (copied(t, x, shape) for x in (*parts, decay))
    query = unary(t, "mul", query, "nothing")
    rate = copied(t, rate, (*shape[:2], 1))
    value, weighted_key = mul(t, value, rate), mul(t, key, rate)
    total = unary(t, "cumsum", decay, "nothing")
    pairs = _pairwise_decay(t, total)
    inverse = _inverse(t, _scores(t, weighted_key, key, pairs))
    sizes = (shape[0], chunk, chunk, width)
    values = product(t, inverse, value, sizes)
    keys = product(t, inverse, mul(t, weighted_key, unary(t, "exp", total, "output")), sizes)
    del inverse, value, weighted_key
    state = t.kernel("zeros", (), t.new((states, width, width), "fp32"))
    out = t.kernel("zeros", (), t.new(shape, "fp32"))
    for _ in range(chunks):
        mixed, state = _one_chunk(t, states, (query, key, keys, values, total, pairs), state)
        store(t, out, mixed)
        del mixed
    return narrowed(t, out, (seq, batch, heads, width))


def _pairwise_decay(t: Tape, total: SymbolicTensor) -> SymbolicTensor:
    """Decay between two tokens of a chunk, by channel; (rows, tokens, tokens, width)."""
    rows, q, width = total.shape
    distance = add(t, total.view(rows, q, 1, width), total.view(rows, 1, q, width), op="sub")
    after = t.kernel("triu", (), t.new((1, q, q, 1), "bool"))
    return unary(t, "exp", masked(t, distance, after), "output")


def _scores(
    t: Tape, first: SymbolicTensor, second: SymbolicTensor, pairs: SymbolicTensor
) -> SymbolicTensor:
    """Decayed products of two tokens summed over channels, without later ones."""
    rows, q, width = first.shape
    products = mul(t, first.view(rows, q, 1, width), second.view(rows, 1, q, width))
    sums = mean(t, mul(t, products, pairs), (rows, q, q, 1)).view(rows, q, q)
    after = t.kernel("triu", (), t.new((1, q, q), "bool"))
    return masked(t, sums, after)


def _inverse(t: Tape, scores: SymbolicTensor) -> SymbolicTensor:
    """Inverse of a unit triangular system, row by row, in place."""
    rows, q, _ = scores.shape
    system = unary(t, "neg", scores, "nothing")
    for i in range(1, q):
        row = copied(t, narrowed(t, system, (rows, i, 1)), (rows, i, 1))
        before = copied(t, narrowed(t, system, (rows, i, i)), (rows, i, i))
        sums = mean(t, mul(t, row, before), (rows, 1, i))
        store(t, system, add(t, row.view(rows, 1, i), sums))
        del row, before, sums
    return unary(t, "add", system, "nothing")


def _one_chunk(
    t: Tape, states: int, inputs: tuple[SymbolicTensor, ...], state: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """A chunk's results and the state after it."""
    query, key, keys, values, total, pairs = (
        narrowed(t, x, (states, *x.shape[1:])) for x in inputs
    )
    q, (_, k, v) = query.shape[1], state.shape
    from_state = product(
        t, mul(t, query, unary(t, "exp", total, "output")), state, (states, q, k, v)
    )
    scores = _scores(t, query, key, pairs)
    new = add(t, values, product(t, keys, state, (states, q, k, v)), op="sub")
    mixed = add(t, from_state, product(t, scores, new, (states, q, q, v)))
    del from_state
    last = narrowed(t, total, (states, 1, k))
    kept = mul(t, state, unary(t, "exp", last, "output").view(states, k, 1))
    to_end = unary(t, "exp", add(t, last, total, op="sub"), "output")
    return mixed, add(t, kept, product(t, mul(t, key, to_end), new, (states, k, q, v)))


def fused_scan(
    c: OpContext,
    spec: KimiDeltaAttention,
    channels: SymbolicTensor,
    decay: SymbolicTensor,
    rate: SymbolicTensor,
) -> SymbolicTensor:
    """The scan in chunked kernels, as flash-linear-attention's (ops/kda); (seq, batch, inner)."""
    _, _, heads, width = decay.shape
    rule = DeltaRule(
        key_heads=heads, value_heads=heads, key_dim=width, value_dim=width, chunk=spec.chunk
    )
    return delta_rule_scan(c, rule, heads, channels, decay, rate)
