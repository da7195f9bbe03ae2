"""Single tensor operations as eager torch runs them, with their saved tensors.

For mixers' plain forms: each operation is a kernel, and keeps only its derivative's inputs alive. A
broadcast operand's gradient is summed back to its shape. Tensors without a ``producer`` get no
gradient, and tensors read only by that gradient are not saved.
"""

from __future__ import annotations

import math
from typing import Literal

from ...spec.workload.number_formats import ELEMENT_BYTES
from ..symbolic.tape import SymbolicTensor, Tape

Saves = Literal["input", "output", "nothing"]


def parameter(t: Tape, shape: tuple[int, ...], dtype: str) -> SymbolicTensor:
    """A parameter: always resident; its gradient, if trained, is the layer's."""
    value = t.constant(shape, dtype)
    if t.frozen:
        return value

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        t.parameter_gradient(grad)
        return ()

    t.record((value,), (), backward)
    return value


def alias(x: SymbolicTensor) -> SymbolicTensor:
    """The same storage off the gradient path, for closures to hold."""
    return SymbolicTensor(x.shape, x.dtype, x.storage)


def unary(t: Tape, op: str, x: SymbolicTensor, saves: Saves) -> SymbolicTensor:
    """Apply ``op`` to each element; its derivative reads input, output or neither."""
    out = t.kernel(op, (x,), t.like(x))
    saved = {"input": (alias(x),), "output": (alias(out),), "nothing": ()}[saves]

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel(f"{op}_backward", (grad, *saved), t.like(grad)),)

    if x.producer is not None:
        t.record((out,), (x,), backward)
    return out


def cast(t: Tape, x: SymbolicTensor, dtype: str) -> SymbolicTensor:
    """Convert to another type; ``x`` itself if it has that type."""
    return x if x.dtype == dtype else copied(t, x, x.shape, dtype)


def copied(
    t: Tape, x: SymbolicTensor, shape: tuple[int, ...], dtype: str | None = None
) -> SymbolicTensor:
    """A copy in another order or type, or padded to ``shape``."""
    before, dtype_before = x.shape, x.dtype
    resized = math.prod(shape) != x.elements
    op = "copy" if dtype in (None, x.dtype) else "cast"
    out = t.kernel(op, (x,), t.new(shape, dtype or x.dtype))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if op == "cast" or resized:
            return (t.kernel(op, (grad,), t.new(before, dtype_before)),)
        return (grad.view(*before),)

    if x.producer is not None:
        t.record((out,), (x,), backward)
    return out


def expanded(t: Tape, x: SymbolicTensor, shape: tuple[int, ...], op: str = "") -> SymbolicTensor:
    """``x`` repeated to ``shape``: a view, or by kernel ``op`` a copy."""
    before, dtype = x.shape, x.dtype
    out = t.kernel(op, (x,), t.new(shape, dtype)) if op else SymbolicTensor(shape, dtype, x.storage)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("sum", (grad,), t.new(before, dtype)),)

    if x.producer is not None:
        t.record((out,), (x,), backward)
    return out


def narrowed(t: Tape, x: SymbolicTensor, shape: tuple[int, ...]) -> SymbolicTensor:
    """A slice of ``x``: a view with a gradient of zero elsewhere."""
    before = x.shape
    out = SymbolicTensor(shape, x.dtype, x.storage)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        gradient = t.kernel("zeros", (), t.new(before, grad.dtype))
        t.kernel("copy", (grad,), gradient)
        return (gradient,)

    if x.producer is not None:
        t.record((out,), (x,), backward)
    return out


def split(t: Tape, x: SymbolicTensor, widths: tuple[int, ...]) -> tuple[SymbolicTensor, ...]:
    """Slices of the last axis: views; a copy joins their gradients."""
    lead, shape = x.shape[:-1], x.shape
    outs = tuple(SymbolicTensor((*lead, width), x.dtype, x.storage) for width in widths)

    def backward(*grads: SymbolicTensor | None) -> tuple[SymbolicTensor | None, ...]:
        present = tuple(grad for grad in grads if grad is not None)
        return (t.kernel("copy", present, t.new(shape, present[0].dtype)),)

    if x.producer is not None:
        t.record(outs, (x,), backward)
    return outs


def mul(t: Tape, a: SymbolicTensor, b: SymbolicTensor) -> SymbolicTensor:
    """Elementwise product; each operand is saved if the other needs a gradient."""
    out = _combined(t, "mul", a, b)
    kept_a = alias(a) if b.producer is not None else None
    kept_b = alias(b) if a.producer is not None else None
    shapes_and_dtypes = ((a.shape, a.dtype), (b.shape, b.dtype))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        gradients: list[SymbolicTensor | None] = []
        for other, (shape, dtype) in zip((kept_b, kept_a), shapes_and_dtypes, strict=True):
            if other is None:
                gradients.append(None)
                continue
            product = t.kernel("mul", (grad, other), t.like(grad))
            gradients.append(_summed(t, product, shape, dtype))
        return tuple(gradients)

    if a.producer is not None or b.producer is not None:
        t.record((out,), (a, b), backward)
    return out


def add(t: Tape, a: SymbolicTensor, b: SymbolicTensor, op: str = "add") -> SymbolicTensor:
    """Elementwise sum (or difference); saves nothing."""
    out = _combined(t, op, a, b)
    shapes_and_dtypes = [(x.shape, x.dtype) if x.producer is not None else None for x in (a, b)]

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return tuple(
            _summed(t, grad, *shape_and_dtype) if shape_and_dtype is not None else None
            for shape_and_dtype in shapes_and_dtypes
        )

    if a.producer is not None or b.producer is not None:
        t.record((out,), (a, b), backward)
    return out


def _combined(t: Tape, op: str, a: SymbolicTensor, b: SymbolicTensor) -> SymbolicTensor:
    shape = tuple(max(m, n) for m, n in zip(a.shape, b.shape, strict=True))
    dtype = max((a.dtype, b.dtype), key=lambda name: ELEMENT_BYTES[name])
    return t.kernel(op, (a, b), t.new(shape, dtype))


def _summed(t: Tape, grad: SymbolicTensor, shape: tuple[int, ...], dtype: str) -> SymbolicTensor:
    if math.prod(shape) != grad.elements:
        grad = t.kernel("sum", (grad,), t.new(shape, grad.dtype))
    if dtype != grad.dtype:
        grad = t.kernel("cast", (grad,), t.new(shape, dtype))
    return grad


def masked(t: Tape, x: SymbolicTensor, mask: SymbolicTensor) -> SymbolicTensor:
    """Replace the elements of ``x`` under a boolean mask; saves the mask."""
    out = t.kernel("masked_fill", (x, mask), t.like(x))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("masked_fill", (grad, mask), t.like(grad)),)

    if x.producer is not None:
        t.record((out,), (x,), backward)
    return out


def mean(t: Tape, x: SymbolicTensor, shape: tuple[int, ...]) -> SymbolicTensor:
    """Mean (or sum) over axes of length 1 in ``shape``."""
    before = x.shape
    out = t.kernel("mean", (x,), t.new(shape, x.dtype))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("div", (grad,), t.new(before, grad.dtype)),)

    if x.producer is not None:
        t.record((out,), (x,), backward)
    return out


def product(
    t: Tape, a: SymbolicTensor, b: SymbolicTensor, sizes: tuple[int, int, int, int]
) -> SymbolicTensor:
    """Batched product of ``sizes`` (batch, m, k, n); saves both operands."""
    batch, m, k, n = sizes
    out = _product(t, a, b, sizes)
    kept_a = alias(a) if b.producer is not None else None
    kept_b = alias(b) if a.producer is not None else None
    shapes = a.shape, b.shape

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_a = grad_b = None
        if kept_b is not None:
            grad_a = _product(t, grad, kept_b, (batch, m, n, k)).view(*shapes[0])
        if kept_a is not None:
            grad_b = _product(t, kept_a, grad, (batch, k, m, n)).view(*shapes[1])
        return (grad_a, grad_b)

    if a.producer is not None or b.producer is not None:
        t.record((out,), (a, b), backward)
    return out


def _product(
    t: Tape, a: SymbolicTensor, b: SymbolicTensor, sizes: tuple[int, int, int, int]
) -> SymbolicTensor:
    batch, m, k, n = sizes
    out = t.new((batch, m, n), a.dtype)
    traffic_bytes = batch * (m * k + k * n + m * n) * ELEMENT_BYTES[a.dtype]
    t.shaped_kernel("batched_matmul", sizes, a.dtype, 2 * batch * m * k * n, traffic_bytes)
    return out
