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
from .projections import (
    Product,
    Projections,
    add_biases,
    biased_gradients,
    joined_gradients,
    split_products,
    summed_gradients,
)


def cuts_products(c: OpContext) -> bool:
    """True if a layer's split products are in chunks."""
    plain = c.precision is None and c.base is None and c.training.weights
    return c.stack.product_chunks > 1 and c.sequence_parallel and c.tp > 1 and plain


def chunked_column_linear(
    c: OpContext, x: SymbolicTensor, groups: tuple[Projections, ...]
) -> tuple[SymbolicTensor, ...]:
    """Projections of one input, gathered in chunks; see ``linear.column_projections``."""
    t, hidden = c.tape, x.shape[-1]
    wanted = [item for group in groups for item in group.products]
    lead = (x.shape[0] * c.tp, *x.shape[1:-1])
    tokens, chunks = math.prod(lead), c.stack.product_chunks
    outs = split_products(groups, lead, _column_products(c, (*lead, hidden), wanted))

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = joined_gradients(t, groups, grads)
        del grads
        ordered = tuple(_reordered(t, grad) for grad in joined)
        del joined
        regathered = t.new((*lead, hidden), c.dtype)
        for chunk in range(chunks):
            _gather(c, regathered, chunk, queued=True)
        partial = t.new((*lead, hidden), c.dtype)
        for chunk in range(chunks):
            for number, item in enumerate(wanted):
                t.product(tokens // chunks, item.width, hidden, c.dtype, number > 0)
            _scatter(c, partial, chunk)
        grad_x = t.like(x)
        del partial

        def weight_gradients() -> None:
            nonlocal regathered
            for item in wanted:
                t.product(item.width, tokens, hidden, c.dtype, t.main_gradients)
            del regathered
            made = [] if t.main_gradients else [t.new((w, hidden), c.dtype) for _, w, _ in wanted]
            made += [
                t.kernel("sum", (grad,), t.new((width,), c.dtype))
                for grad, width in biased_gradients(groups, ordered)
            ]
            for gradient in made:
                t.parameter_gradient(gradient)

        t.weight_work(weight_gradients)
        return (grad_x,)

    t.record(outs, (x,), backward)
    return outs


def _column_products(
    c: OpContext, shape: tuple[int, ...], wanted: list[Product]
) -> list[SymbolicTensor]:
    """Products of a gathered input of this shape, in the order of tokens, and kept by name."""
    t, (*lead, hidden), chunks = c.tape, shape, c.stack.product_chunks
    kept = [t.kept_result(item.names) for item in wanted]
    products = [None if held is None else held[0] for held in kept]
    missing = [number for number, held in enumerate(kept) if held is None]
    if missing:
        gathered = t.new(shape, c.dtype)
        pieces = [t.new((*lead, wanted[number].width), c.dtype) for number in missing]
        for chunk in range(chunks):
            _gather(c, gathered, chunk)
            for number in missing:
                _, width, bias = wanted[number]
                t.product(math.prod(lead) // chunks, hidden, width, c.dtype, False, bias)
        del gathered
        for number in missing:
            products[number] = _reordered(t, pieces.pop(0))
    made = [product for product in products if product is not None]
    for item, product in zip(wanted, made, strict=True):
        t.keep_result(item.names, product)
    return made


def chunked_row_linear(
    c: OpContext,
    xs: tuple[SymbolicTensor, ...],
    width: int,
    biases: tuple[bool, ...],
    names: tuple[str, ...],
) -> SymbolicTensor:
    """Projections summed over the ranks in chunks; see ``linear.row_projections``."""
    t, chunks, lead = c.tape, c.stack.product_chunks, xs[0].shape[:-1]
    tokens, shapes = math.prod(lead), [x.shape for x in xs]
    kept = t.kept_result(names)
    if kept is None:
        ordered = [_reordered(t, x) for x in xs]
        partial = t.new((*lead, width), c.dtype)
        for chunk in range(chunks):
            for number, shape in enumerate(shapes):
                t.product(tokens // chunks, shape[-1], width, c.dtype, number > 0)
            _scatter(c, partial, chunk)
        del ordered
        out = t.new((lead[0] // c.tp, *lead[1:], width), c.dtype)
        del partial
        add_biases(c, out, biases)
    else:
        out = kept[0]
    t.keep_result(names, out)
    del kept
    saved = xs

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_biases = summed_gradients(c, grad, biases)
        gathered_grad = t.new((*lead, width), c.dtype)
        pieces = [t.new(shape, c.dtype) for shape in shapes]
        for chunk in range(chunks):
            _gather(c, gathered_grad, chunk)
            for shape in shapes:
                t.product(tokens // chunks, width, shape[-1], c.dtype)
        del grad
        grad_xs = [_reordered(t, pieces.pop(0)) for _ in shapes]

        def weight_gradient() -> None:
            nonlocal gathered_grad
            for x in saved:
                ordered = _reordered(t, x)
                t.product(width, tokens, x.shape[-1], c.dtype, t.main_gradients)
                del ordered
                if not t.main_gradients:
                    t.parameter_gradient(t.new((width, x.shape[-1]), c.dtype))
            del gathered_grad

        t.weight_work(weight_gradient)
        del weight_gradient
        for grad_bias in grad_biases:
            t.parameter_gradient(grad_bias)
        return tuple(grad_xs)

    t.record((out,), xs, backward)
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
