"""Linear layers as symbolic work: split along outputs (column) or inputs (row), or whole."""

from __future__ import annotations

from .ops import OpContext
from .tape import Tape, Value


def column_linear(
    c: OpContext,
    x: Value,
    widths: tuple[int, ...],
    bias: bool,
    fused: bool,
    names: tuple[str, ...] = (),
    shared: bool = False,
) -> tuple[Value, ...]:
    """Projections of one input to local ``widths``, split along their outputs.

    ``fused`` runs them as one product of their joint width. ``names`` are those of the weights
    in :mod:`..spec.parameters`, by which adapters find them. ``shared`` weights are another
    layer's, whose gradient is there already.
    """
    t, hidden = c.tape, x.shape[-1]
    parts = (sum(widths),) if fused else widths
    whole = c.gather_sequence(x)
    lead, tokens = whole.shape[:-1], whole.elements // hidden
    joint = []
    for width in parts:
        t.product(tokens, hidden, width, c.dtype, bias=bias)
        joint.append(t.new((*lead, width), c.dtype))
    del whole
    outs = tuple(joint[0].view(*lead, w) for w in widths) if fused else tuple(joint)

    def backward(*grads: Value) -> tuple[Value | None, ...]:
        joined = _join_gradients(t, grads) if fused and len(grads) > 1 else grads
        grad_x = t.new((*lead, hidden), c.dtype)
        for number, width in enumerate(parts):
            t.product(tokens, width, hidden, c.dtype, accumulate=number > 0)
        grad_x = c.reduce(grad_x)
        again = c.gather_sequence(x)

        def weight_gradients() -> None:
            nonlocal again
            gradients = [_weight_gradient(c, width, hidden, tokens) for width in parts]
            del again
            bias_gradients = [
                t.kernel("sum", (g,), t.new((width,), c.dtype))
                for g, width in zip(joined, parts, strict=True)
                if bias
            ]
            for gradient in [*(g for g in gradients if g is not None), *bias_gradients]:
                t.parameter_gradient(gradient, shared)

        t.weight_work(weight_gradients)
        return (grad_x,)

    t.record(outs, (x,), backward)
    return outs


def _join_gradients(t: Tape, grads: tuple[Value, ...]) -> tuple[Value, ...]:
    """Gradients of the parts of a fused projection, side by side again."""
    width = sum(g.elements for g in grads) // (grads[0].shape[0] * grads[0].shape[1])
    joined = t.new((*grads[0].shape[:2], width), grads[0].dtype)
    t.kernel("copy", grads, joined)
    return (joined,)


def _weight_gradient(c: OpContext, out_width: int, in_width: int, tokens: int) -> Value | None:
    """Gradient of an (out, in) weight from ``tokens`` tokens; None if the product added it."""
    c.tape.product(out_width, tokens, in_width, c.dtype, accumulate=c.tape.main_gradients)
    return None if c.tape.main_gradients else c.tape.new((out_width, in_width), c.dtype)


def row_linear(c: OpContext, x: Value, width: int, bias: bool, name: str = "") -> Value:
    """A projection split along its inputs, summed over the tensor-parallel ranks.

    ``name`` is that of the weight, by which an adapter finds it.
    """
    t, local = c.tape, x.shape[-1]
    lead, tokens = x.shape[:-1], x.elements // local
    t.product(tokens, local, width, c.dtype)
    out = c.reduce(t.new((*lead, width), c.dtype))
    if bias and not c.stack.fusion.bias_residual:
        t.kernel("add", (out, t.constant((width,), c.dtype)), out)

    def backward(grad: Value) -> tuple[Value | None, ...]:
        grad_bias = t.kernel("sum", (grad,), t.new((width,), c.dtype)) if bias else None
        whole = c.gather_sequence(grad)
        del grad
        t.product(tokens, width, local, c.dtype)
        grad_x = t.new(x.shape, c.dtype)

        def weight_gradient() -> None:
            nonlocal whole
            gradient = _weight_gradient(c, width, x.shape[-1], tokens)
            if gradient is not None:
                t.parameter_gradient(gradient)
            del whole

        t.weight_work(weight_gradient)
        del weight_gradient
        if grad_bias is not None:
            t.parameter_gradient(grad_bias)
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out


def whole_linear(
    c: OpContext, x: Value, width: int, bias: bool, name: str = "", differentiable: bool = True
) -> Value:
    """A projection that no rank splits: each runs it on the tokens that it has.

    ``name`` is that of the weight, by which an adapter finds it. An input that is data needs no
    gradient (``differentiable`` false).
    """
    t, hidden = c.tape, x.shape[-1]
    lead, tokens = x.shape[:-1], x.elements // hidden
    t.product(tokens, hidden, width, c.dtype, bias=bias)
    out = t.new((*lead, width), c.dtype)

    def backward(grad: Value) -> tuple[Value | None, ...]:
        grad_x = None
        if differentiable:
            t.product(tokens, width, hidden, c.dtype)
            grad_x = t.new(x.shape, c.dtype)

        def weight_gradient() -> None:
            gradient = _weight_gradient(c, grad.shape[-1], x.shape[-1], tokens)
            if gradient is not None:
                t.parameter_gradient(gradient)
            if bias:
                t.parameter_gradient(t.kernel("sum", (grad,), t.new((width,), c.dtype)))

        t.weight_work(weight_gradient)
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out
