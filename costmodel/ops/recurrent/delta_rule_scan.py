"""The chunked delta rule in eager torch: products, then chunk by chunk."""

from __future__ import annotations

from ...symbolic.tape import SymbolicTensor, Tape
from ..eager import add, alias, copied, masked, mul, narrowed, product, unary


def plain_scan(
    t: Tape,
    chunk: int,
    query: SymbolicTensor,
    key: SymbolicTensor,
    value: SymbolicTensor,
    decay: SymbolicTensor,
    rate: SymbolicTensor,
) -> SymbolicTensor:
    """Chunked scan of fp32 inputs (seq, batch, heads, width).

    Args:
        t: the tape.
        chunk: tokens per chunk.
        query: scaled, of unit length.
        key: of unit length.
        value: stored values.
        decay: logarithm of the retained share, (seq, batch, heads).
        rate: learning rate, (seq, batch, heads).

    Returns:
        (seq, batch, heads, value width).
    """
    seq, batch, heads, width = value.shape
    chunks, states = -(-seq // chunk), batch * heads
    rows = states * chunks
    query, key, value = (copied(t, x, (rows, chunk, x.shape[-1])) for x in (query, key, value))
    rate, decay = (copied(t, x, (rows, chunk, 1)) for x in (rate, decay))
    value, weighted_key = mul(t, value, rate), mul(t, key, rate)
    total = unary(t, "cumsum", decay, "nothing")
    system, scores = _pairs(t, query, key, weighted_key, total)
    weighted_key = mul(t, weighted_key, unary(t, "exp", total, "output"))
    values, keys = _solved(t, system, value), _solved(t, system, weighted_key)
    del system, value, weighted_key
    query = mul(t, query, unary(t, "exp", total, "output"))
    last = narrowed(t, total, (rows, 1, 1))
    to_end = add(t, last, total, op="sub")
    key = mul(t, key, unary(t, "exp", to_end, "output"))
    chunk_decay = unary(t, "exp", last, "output")
    del to_end, last, total
    state = t.kernel("zeros", (), t.new((states, query.shape[-1], width), "fp32"))
    out = t.kernel("zeros", (), t.new((rows, chunk, width), "fp32"))
    for _ in range(chunks):
        mixed, state = _one_chunk(t, states, (query, key, keys, values, scores, chunk_decay), state)
        store(t, out, mixed)
        del mixed
    return narrowed(t, out, (seq, batch, heads, width))


def _pairs(
    t: Tape,
    query: SymbolicTensor,
    key: SymbolicTensor,
    weighted_key: SymbolicTensor,
    total: SymbolicTensor,
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """The keys' triangular system and the query-key scores, both decayed."""
    rows, q, width = key.shape
    row, column = total, total.view(rows, 1, q)
    decay = add(t, row, column, op="sub")
    after = t.kernel("triu", (), t.new((1, q, q), "bool"))
    decay = unary(t, "exp", masked(t, decay, after), "output")
    sizes = (rows, q, width, q)
    system = mul(t, product(t, weighted_key, key, sizes), decay)
    return system, mul(t, product(t, query, key, sizes), decay)


def _solved(t: Tape, system: SymbolicTensor, right: SymbolicTensor) -> SymbolicTensor:
    """Solve a unit triangular system, without FLOPs, as torch counts.

    Its gradient is a product of the gradient and the solution.
    """
    rows, q, width = right.shape
    out = t.like(right)
    t.kernel("solve_triangular", (system, right), out)
    saved_system, saved = alias(system), alias(out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_right = t.like(grad)
        t.kernel("solve_triangular", (saved_system, grad), grad_right)
        grad_system = t.new(saved_system.shape, grad.dtype)
        traffic_bytes = grad_right.size_bytes + saved.size_bytes + grad_system.size_bytes
        flops = 2 * rows * q * width * q
        sizes = (rows, q, width, q)
        t.shaped_kernel("batched_matmul", sizes, grad.dtype, flops, traffic_bytes)
        t.kernel("tril", (grad_system,), grad_system)
        return grad_system, grad_right

    t.record((out,), (system, right), backward)
    return out


def _one_chunk(
    t: Tape, states: int, inputs: tuple[SymbolicTensor, ...], state: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """A chunk's results and the state after it."""
    query, key, keys, values, scores, forget = (
        narrowed(t, x, (states, *x.shape[1:])) for x in inputs
    )
    q, (_, k, v) = query.shape[1], state.shape
    predicted = product(t, keys, state, (states, q, k, v))
    new = add(t, values, predicted, op="sub")
    del predicted
    from_state = product(t, query, state, (states, q, k, v))
    mixed = add(t, from_state, product(t, scores, new, (states, q, q, v)))
    del from_state
    decayed_state = mul(t, state, forget)
    return mixed, add(t, decayed_state, product(t, key, new, (states, k, q, v)))


def store(t: Tape, out: SymbolicTensor, part: SymbolicTensor) -> None:
    """Write a chunk's results in place; the backward copies the whole gradient."""
    shape = part.shape
    t.kernel("copy", (part,), alias(part))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_out = t.kernel("copy", (grad,), t.like(grad))
        grad_part = t.kernel("copy", (grad,), t.new(shape, grad.dtype))
        return grad_out, grad_part

    before = alias(out)
    before.producer = out.producer
    t.record((out,), (before, part), backward)
