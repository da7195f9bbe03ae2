"""Linear layers as symbolic work: split along outputs (column) or inputs (row), or whole.

Products read what :func:`operand` makes of their inputs: the inputs themselves, or narrow copies.
Only what a gradient needs is kept: the operand where the weight is trained, the input where an
adapter is, nothing where the layer is frozen.
"""

from __future__ import annotations

from typing import Literal

from ..symbolic.tape import SymbolicTensor, Tape
from .context import OpContext
from .lora import adapted, adapter_backward, add_adapter
from .low_precision import UNQUANTISED, operand, quantised_weight


def _own_format(c: OpContext, name: str, shared: bool = False) -> OpContext:
    """The context of a layer: without a narrow format where its products stay in theirs."""
    return c.unquantised() if shared or name in UNQUANTISED else c


def _product(
    c: OpContext, m: int, k: int, n: int, accumulate: bool = False, bias: bool = False
) -> None:
    """(m, k) times an (n, k) weight, quantised first where the stack does so for each use."""
    weight = quantised_weight(c.tape, c.precision, k * n, c.dtype)
    c.tape.product(m, k, n, c.dtype, accumulate, bias, c.operand_format)
    del weight


def column_linear(
    c: OpContext,
    x: SymbolicTensor,
    widths: tuple[int, ...],
    bias: bool,
    fused: bool,
    names: tuple[str, ...] = (),
    shared: bool = False,
) -> tuple[SymbolicTensor, ...]:
    """Projections of one input to local ``widths``, split along their outputs.

    ``fused`` runs them as one product of their joint width. ``names`` are those of the weights
    in :mod:`layer_parameters`, by which adapters find them. ``shared`` weights are another
    layer's, whose gradient is there already.
    """
    c = _own_format(c, names[0] if names else "", shared)
    t, hidden = c.tape, x.shape[-1]
    parts = (sum(widths),) if fused else widths
    beside = [n for n, has in enumerate(adapted(c, names)) if has]
    read = operand(t, c.precision, x)
    whole = c.gather_sequence(read)
    lead, tokens = whole.shape[:-1], whole.elements // hidden
    joint = []
    for width in parts:
        _product(c, tokens, hidden, width, bias=bias)
        joint.append(t.new((*lead, width), c.dtype))
    del whole
    outs = tuple(joint[0].view(*lead, w) for w in widths) if fused else tuple(joint)
    adapters = _Adapters(c, x, [outs[n] for n in beside], "outputs") if beside else None
    kept = read if c.training.weights else None
    del read

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = _join_gradients(t, grads) if fused and len(grads) > 1 else grads
        narrow = tuple(operand(t, c.precision, grad) for grad in joined)
        grad_x = t.new((*lead, hidden), c.dtype)
        for number, width in enumerate(parts):
            _product(c, tokens, width, hidden, accumulate=number > 0)
        if adapters is not None:
            adapters.backward([widths[n] for n in beside])
        grad_x = c.reduce(grad_x)
        if kept is None:
            return (grad_x,)
        again, held = c.gather_sequence(kept), (narrow, joined if bias else ())

        def weight_gradients() -> None:
            nonlocal again
            gradients = [_weight_gradient(c, width, hidden, tokens) for width in parts]
            del again
            biases = [_bias_gradient(c, *g) for g in zip(held[1], parts, strict=bias)]
            for gradient in [*(g for g in gradients if g is not None), *biases]:
                t.parameter_gradient(gradient, shared)

        t.weight_work(weight_gradients)
        return (grad_x,)

    t.record(outs, (x,), backward)
    return outs


class _Adapters:
    """The adapters beside the parts of one projection, which read one input.

    ``split``: along what tensor parallelism splits the projection.
    """

    def __init__(
        self,
        c: OpContext,
        x: SymbolicTensor,
        outs: list[SymbolicTensor],
        split: Literal["outputs", "inputs", "nothing"],
    ) -> None:
        self.c, self.x, self.split = c, x, split
        whole, sums_inner = self._whole(), split == "inputs"
        self.inner = [add_adapter(c, whole, out, sums_inner) for out in outs]

    def backward(self, widths: list[int]) -> None:
        """Gradients of all of them, ``widths`` being those of their outputs."""
        whole, sums_inner = self._whole(), self.split == "outputs"
        for inner, width in zip(self.inner, widths, strict=True):
            adapter_backward(self.c, whole, inner, width, sums_inner)

    def _whole(self) -> SymbolicTensor:
        return self.c.gather_sequence(self.x) if self.split == "outputs" else self.x


def _join_gradients(t: Tape, grads: tuple[SymbolicTensor, ...]) -> tuple[SymbolicTensor, ...]:
    """Gradients of the parts of a fused projection, side by side again."""
    width = sum(g.elements for g in grads) // (grads[0].shape[0] * grads[0].shape[1])
    joined = t.new((*grads[0].shape[:2], width), grads[0].dtype)
    t.kernel("copy", grads, joined)
    return (joined,)


def _bias_gradient(c: OpContext, grad: SymbolicTensor, width: int) -> SymbolicTensor:
    """Gradient of a bias: that of the output, summed over the tokens."""
    return c.tape.kernel("sum", (grad,), c.tape.new((width,), c.dtype))


def _weight_gradient(
    c: OpContext, out_width: int, in_width: int, tokens: int
) -> SymbolicTensor | None:
    """Gradient of an (out, in) weight from ``tokens`` tokens; None if the product added it."""
    adds = c.tape.main_gradients
    c.tape.product(out_width, tokens, in_width, c.dtype, adds, operands=c.operand_format)
    return None if adds else c.tape.new((out_width, in_width), c.dtype)


def row_linear(
    c: OpContext, x: SymbolicTensor, width: int, bias: bool, name: str = ""
) -> SymbolicTensor:
    """A projection split along its inputs, summed over the tensor-parallel ranks.

    ``name`` is that of the weight, by which an adapter finds it.
    """
    t, local, shape = c.tape, x.shape[-1], x.shape
    lead, tokens = x.shape[:-1], x.elements // local
    read = operand(t, c.precision, x)
    _product(c, tokens, local, width)
    out = t.new((*lead, width), c.dtype)
    adapters = _Adapters(c, x, [out], "inputs") if adapted(c, (name,))[0] else None
    out = c.reduce(out)
    if bias and not c.stack.fusion.bias_residual:
        t.kernel("add", (out, t.constant((width,), c.dtype)), out)
    kept = read if c.training.weights else None
    del read

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        has_bias = bias and kept is not None
        grad_bias = t.kernel("sum", (grad,), t.new((width,), c.dtype)) if has_bias else None
        whole = c.gather_sequence(operand(t, c.precision, grad))
        del grad
        _product(c, tokens, width, local)
        grad_x = t.new(shape, c.dtype)
        if adapters is not None:
            adapters.backward([width])
        if kept is None:
            return (grad_x,)

        def weight_gradient() -> None:
            nonlocal whole
            gradient = _weight_gradient(c, width, kept.shape[-1], tokens)
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
    c: OpContext,
    x: SymbolicTensor,
    width: int,
    bias: bool,
    name: str = "",
    differentiable: bool = True,
) -> SymbolicTensor:
    """A projection that no rank splits: each runs it on the tokens that it has.

    ``name`` is that of the weight, by which an adapter finds it. An input that is data needs no
    gradient (``differentiable`` false).
    """
    c = _own_format(c, name)
    t, hidden, shape = c.tape, x.shape[-1], x.shape
    lead, tokens = x.shape[:-1], x.elements // hidden
    kept = operand(t, c.precision, x) if c.training.weights else None
    _product(c, tokens, hidden, width, bias=bias)
    out = t.new((*lead, width), c.dtype)
    adapters = _Adapters(c, x, [out], "nothing") if adapted(c, (name,))[0] else None

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        narrow = operand(t, c.precision, grad)
        bias_source = grad if bias else None
        grad_x = None
        if differentiable:
            _product(c, tokens, width, hidden)
            grad_x = t.new(shape, c.dtype)
        if adapters is not None:
            adapters.backward([width])
        if kept is None:
            return (grad_x,)

        def weight_gradient() -> None:
            gradient = _weight_gradient(c, narrow.shape[-1], kept.shape[-1], tokens)
            if gradient is not None:
                t.parameter_gradient(gradient)
            if bias_source is not None:
                total = t.kernel("sum", (bias_source,), t.new((width,), c.dtype))
                t.parameter_gradient(total)

        t.weight_work(weight_gradient)
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out
