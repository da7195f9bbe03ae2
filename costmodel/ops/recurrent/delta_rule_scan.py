"""The chunked delta rule as eager torch runs it: products in chunks, then chunk after chunk."""

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
    """Scan of fp32 (seq, batch, heads, width) inputs; (seq, batch, heads, value width).

    Args:
        t: the tape.
        chunk: tokens computed by products at a time.
        query: scaled, of unit length.
        key: of unit length.
        value: what is stored.
        decay: logarithm of what is kept, (seq, batch, heads).
        rate: how much is learned, (seq, batch, heads).
    """
    seq, batch, heads, width = value.shape
    chunks, many = -(-seq // chunk), batch * heads
    rows = many * chunks
    query, key, value = (copied(t, x, (rows, chunk, x.shape[-1])) for x in (query, key, value))
    rate, decay = (copied(t, x, (rows, chunk, 1)) for x in (rate, decay))
    value, learned = mul(t, value, rate), mul(t, key, rate)
    total = unary(t, "cumsum", decay, "nothing")
    system, scores = _pairs(t, query, key, learned, total)
    learned = mul(t, learned, unary(t, "exp", total, "output"))
    values, keys = _solved(t, system, value), _solved(t, system, learned)
    del system, value, learned
    query = mul(t, query, unary(t, "exp", total, "output"))
    last = narrowed(t, total, (rows, 1, 1))
    to_end = add(t, last, total, op="sub")
    key = mul(t, key, unary(t, "exp", to_end, "output"))
    forget = unary(t, "exp", last, "output")
    del to_end, last, total
    state = t.kernel("zeros", (), t.new((many, query.shape[-1], width), "fp32"))
    out = t.kernel("zeros", (), t.new((rows, chunk, width), "fp32"))
    for _ in range(chunks):
        mixed, state = _one_chunk(t, many, (query, key, keys, values, scores, forget), state)
        _store(t, out, mixed)
        del mixed
    return narrowed(t, out, (seq, batch, heads, width))


def _pairs(
    t: Tape,
    query: SymbolicTensor,
    key: SymbolicTensor,
    learned: SymbolicTensor,
    total: SymbolicTensor,
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """The triangular system of the keys, and the scores of queries and keys, both decayed."""
    rows, q, width = key.shape
    row, column = total, total.view(rows, 1, q)
    decay = add(t, row, column, op="sub")
    after = t.kernel("triu", (), t.new((1, q, q), "bool"))
    decay = unary(t, "exp", masked(t, decay, after), "output")
    sizes = (rows, q, width, q)
    system = mul(t, product(t, learned, key, sizes), decay)
    return system, mul(t, product(t, query, key, sizes), decay)


def _solved(t: Tape, system: SymbolicTensor, right: SymbolicTensor) -> SymbolicTensor:
    """Solution of a unit triangular system; its FLOPs are not counted, as torch does not.

    The gradient of the system is a product of the gradient and the solution.
    """
    rows, q, width = right.shape
    out = t.like(right)
    t.kernel("solve_triangular", (system, right), out)
    kept_system, kept = alias(system), alias(out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_right = t.like(grad)
        t.kernel("solve_triangular", (kept_system, grad), grad_right)
        grad_system = t.new(kept_system.shape, grad.dtype)
        traffic_bytes = grad_right.size_bytes + kept.size_bytes + grad_system.size_bytes
        flops = 2 * rows * q * width * q
        sizes = (rows, q, width, q)
        t.shaped_kernel("batched_matmul", sizes, grad.dtype, flops, traffic_bytes)
        t.kernel("tril", (grad_system,), grad_system)
        return grad_system, grad_right

    t.record((out,), (system, right), backward)
    return out


def _one_chunk(
    t: Tape, many: int, parts: tuple[SymbolicTensor, ...], state: SymbolicTensor
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """A chunk's results and the state after it."""
    query, key, keys, values, scores, forget = (narrowed(t, x, (many, *x.shape[1:])) for x in parts)
    q, (_, k, v) = query.shape[1], state.shape
    told = product(t, keys, state, (many, q, k, v))
    new = add(t, values, told, op="sub")
    del told
    before = product(t, query, state, (many, q, k, v))
    mixed = add(t, before, product(t, scores, new, (many, q, q, v)))
    del before
    kept = mul(t, state, forget)
    return mixed, add(t, kept, product(t, key, new, (many, k, q, v)))


def _store(t: Tape, out: SymbolicTensor, part: SymbolicTensor) -> None:
    """Write a chunk's results into their place; going backward the whole gradient is copied."""
    shape = part.shape
    t.kernel("copy", (part,), alias(part))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        rest = t.kernel("copy", (grad,), t.like(grad))
        own = t.kernel("copy", (grad,), t.new(shape, grad.dtype))
        return rest, own

    before = alias(out)
    before.producer = out.producer
    t.record((out,), (before, part), backward)
