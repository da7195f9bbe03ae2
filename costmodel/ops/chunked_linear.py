"""Linear layers whose products and collectives run in chunks, one beside another.

A chunk is an equal part of each rank's tokens. Gathers write, and scatters read, chunk after chunk;
copies put rows into the order of chunks before a product and back after it. Runs are
``executor.models.linear.chunked_linear``.
"""

from __future__ import annotations

import math

from ..symbolic.tape import SymbolicTensor, Tape
from ..symbolic.work_overlap import WorkOverlap
from .context import OpContext


def cuts_products(c: OpContext) -> bool:
    """True if a layer's split products are in chunks."""
    plain = c.precision is None and c.base is None and c.training.weights
    return c.stack.product_chunks > 1 and c.sequence_parallel and c.tp > 1 and plain


def chunked_column_linear(
    c: OpContext,
    x: SymbolicTensor,
    widths: tuple[int, ...],
    bias: bool,
    fused: bool,
    names: tuple[str, ...],
) -> tuple[SymbolicTensor, ...]:
    """Projections of one input, gathered in chunks; see ``linear.column_linear``."""
    t, hidden = c.tape, x.shape[-1]
    out_widths = (sum(widths),) if fused else widths
    keys: list[tuple[str, ...]] = [names] if fused else [(name,) for name in names]
    lead = (x.shape[0] * c.tp, *x.shape[1:-1])
    tokens, chunks = math.prod(lead), c.stack.product_chunks
    made = _column_products(c, (*lead, hidden), out_widths, bias, keys)
    outs = tuple(made[0].view(*lead, w) for w in widths) if fused else tuple(made)
    del made

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if fused and len(grads) > 1:
            joined = t.new((*lead, sum(widths)), c.dtype)
            grads = (t.kernel("copy", grads, joined),)
            del joined
        ordered = tuple(_reordered(t, grad) for grad in grads)
        regathered = t.new((*lead, hidden), c.dtype)
        for chunk in range(chunks):
            _gather(c, regathered, chunk, queued=True)
        partial = t.new((*lead, hidden), c.dtype)
        for chunk in range(chunks):
            for number, width in enumerate(out_widths):
                t.product(tokens // chunks, width, hidden, c.dtype, number > 0)
            _scatter(c, partial, chunk)
        grad_x = t.like(x)
        del partial

        def weight_gradients() -> None:
            nonlocal regathered
            for width in out_widths:
                t.product(width, tokens, hidden, c.dtype, t.main_gradients)
            del regathered
            made = [] if t.main_gradients else [t.new((w, hidden), c.dtype) for w in out_widths]
            if bias:
                made += [
                    t.kernel("sum", (grad,), t.new((width,), c.dtype))
                    for grad, width in zip(ordered, out_widths, strict=True)
                ]
            for gradient in made:
                t.parameter_gradient(gradient)

        t.weight_work(weight_gradients)
        return (grad_x,)

    t.record(outs, (x,), backward)
    return outs


def _column_products(
    c: OpContext,
    shape: tuple[int, ...],
    widths: tuple[int, ...],
    bias: bool,
    keys: list[tuple[str, ...]],
) -> list[SymbolicTensor]:
    """Products of a gathered input of this shape, in the order of tokens, and kept by name."""
    t, (*lead, hidden), chunks = c.tape, shape, c.stack.product_chunks
    kept = [t.kept_result(key) for key in keys]
    products = [None if held is None else held[0] for held in kept]
    missing = [number for number, held in enumerate(kept) if held is None]
    if missing:
        gathered = t.new(shape, c.dtype)
        pieces = [t.new((*lead, widths[number]), c.dtype) for number in missing]
        for chunk in range(chunks):
            _gather(c, gathered, chunk)
            for number in missing:
                rows = math.prod(lead) // chunks
                t.product(rows, hidden, widths[number], c.dtype, False, bias)
        del gathered
        for number in missing:
            products[number] = _reordered(t, pieces.pop(0))
    made = [product for product in products if product is not None]
    for key, product in zip(keys, made, strict=True):
        t.keep_result(key, product)
    return made


def chunked_row_linear(
    c: OpContext, x: SymbolicTensor, width: int, bias: bool, name: str
) -> SymbolicTensor:
    """A projection summed over the ranks in chunks; see ``linear.row_linear``."""
    t, local, shape = c.tape, x.shape[-1], x.shape
    lead, tokens, chunks = x.shape[:-1], x.elements // local, c.stack.product_chunks
    kept = t.kept_result((name,))
    if kept is None:
        ordered = _reordered(t, x)
        partial = t.new((*lead, width), c.dtype)
        for chunk in range(chunks):
            t.product(tokens // chunks, local, width, c.dtype)
            _scatter(c, partial, chunk)
        del ordered
        out = t.new((lead[0] // c.tp, *lead[1:], width), c.dtype)
        del partial
        if bias and not c.stack.fusion.bias_residual:
            t.kernel("add", (out, t.constant((width,), c.dtype)), out)
    else:
        out = kept[0]
    t.keep_result((name,), out)
    del kept
    saved = x

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_bias = t.kernel("sum", (grad,), t.new((width,), c.dtype)) if bias else None
        gathered_grad = t.new((*lead, width), c.dtype)
        pieces = t.new(shape, c.dtype)
        for chunk in range(chunks):
            _gather(c, gathered_grad, chunk)
            t.product(tokens // chunks, width, local, c.dtype)
        del grad
        grad_x = _reordered(t, pieces)
        del pieces

        def weight_gradient() -> None:
            nonlocal gathered_grad
            ordered = _reordered(t, saved)
            t.product(width, tokens, local, c.dtype, t.main_gradients)
            del ordered
            if not t.main_gradients:
                t.parameter_gradient(t.new((width, local), c.dtype))
            del gathered_grad

        t.weight_work(weight_gradient)
        del weight_gradient
        if grad_bias is not None:
            t.parameter_gradient(grad_bias)
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out


def _reordered(t: Tape, x: SymbolicTensor) -> SymbolicTensor:
    """A copy with rows in the order of chunks, or back in that of tokens."""
    return t.kernel("copy", (x,), t.like(x))


def _gather(c: OpContext, whole: SymbolicTensor, chunk: int, queued: bool = False) -> None:
    chunks = c.stack.product_chunks
    overlap = WorkOverlap("queued" if queued else "gathered", chunks, chunk=chunk)
    c.tape.collective("all_gather", c.tensor_group, _piece(c, whole), overlap=overlap)


def _scatter(c: OpContext, whole: SymbolicTensor, chunk: int) -> None:
    chunks = c.stack.product_chunks
    overlap = WorkOverlap("scattered", chunks, chunk=chunk)
    c.tape.collective("reduce_scatter", c.tensor_group, _piece(c, whole), overlap=overlap)


def _piece(c: OpContext, whole: SymbolicTensor) -> SymbolicTensor:
    """A chunk of a tensor, with no bytes of its own."""
    return c.tape.constant((whole.elements // c.stack.product_chunks,), whole.dtype)
