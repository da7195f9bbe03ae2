"""Linear layers, split along outputs (column), along inputs (row), or replicated.

Products read :func:`operand` of their inputs: themselves or low-precision copies. Kept are only
tensors that a gradient needs: the operand of a trained weight, the input of an adapter, nothing of
a frozen layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ..symbolic.tape import SymbolicTensor, Tape
from .chunked_linear import chunked_column_linear, chunked_row_linear, cuts_products
from .context import OpContext
from .lora import adapted, adapter_backward, add_adapter
from .low_precision import UNQUANTIZED, dequantized_weight, operand, quantized_weight


def _layer_context(c: OpContext, name: str, shared: bool = False) -> OpContext:
    return c.unquantized() if shared or name in UNQUANTIZED else c


def _product(
    c: OpContext, m: int, k: int, n: int, accumulate: bool = False, bias: bool = False
) -> None:
    """(m, k) times an (n, k) weight, quantized or dequantized first where it has to be."""
    base = dequantized_weight(c.tape, c.base, (1, n, k), c.dtype)
    weight = quantized_weight(c.tape, c.precision, k * n, c.dtype)
    c.tape.product(m, k, n, c.dtype, accumulate, bias, c.operand_format)
    del base, weight


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

    ``fused`` runs one product. ``names``: the weights' in ``layer_parameters``, for adapters.
    ``shared`` weights belong to another layer, whose gradient exists already.
    """
    c = _layer_context(c, names[0] if names else "", shared)
    if cuts_products(c) and names and not shared:
        return chunked_column_linear(c, x, widths, bias, fused, names)
    t, hidden = c.tape, x.shape[-1]
    out_widths = (sum(widths),) if fused else widths
    adapted_outs = [n for n, has in enumerate(adapted(c, names)) if has]
    operand_x = operand(t, c.precision, x)
    lead, products = _products(c, operand_x, out_widths, bias, [names] if fused else names)
    tokens = math.prod(lead)
    outs = tuple(products[0].view(*lead, w) for w in widths) if fused else tuple(products)
    adapters = _Adapters(c, x, [outs[n] for n in adapted_outs], "outputs") if adapted_outs else None
    saved = operand_x if c.training.weights else None
    del operand_x

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = _join_gradients(t, grads) if fused and len(grads) > 1 else grads
        operand_grads = tuple(operand(t, c.precision, grad) for grad in joined)
        grad_x = t.new((*lead, hidden), c.dtype)
        for number, width in enumerate(out_widths):
            _product(c, tokens, width, hidden, accumulate=number > 0)
        if adapters is not None:
            adapters.backward([widths[n] for n in adapted_outs])
        grad_x = c.reduce(grad_x)
        if saved is None:
            return (grad_x,)
        regathered = c.gather_sequence(saved)
        output_grads = operand_grads, joined if bias else ()

        def weight_gradients() -> None:
            nonlocal regathered
            gradients = [_weight_gradient(c, width, hidden, tokens) for width in out_widths]
            del regathered
            biases = [_bias_gradient(c, *g) for g in zip(output_grads[1], out_widths, strict=bias)]
            for gradient in [*(g for g in gradients if g is not None), *biases]:
                t.parameter_gradient(gradient, shared)

        t.weight_work(weight_gradients)
        return (grad_x,)

    t.record(outs, (x,), backward)
    return outs


def _products(
    c: OpContext,
    x: SymbolicTensor,
    widths: tuple[int, ...],
    bias: bool,
    names: Sequence[str | tuple[str, ...]],
) -> tuple[tuple[int, ...], list[SymbolicTensor]]:
    """Products of the whole sequence, save those kept by name; their leading sizes too."""
    t, hidden = c.tape, x.shape[-1]
    keys = [(name,) if isinstance(name, str) else name for name in names] or [()] * len(widths)
    kept = [t.kept_result(key) for key in keys]
    gathered = None if all(kept) else c.gather_sequence(x)
    lead = kept[0][0].shape[:-1] if gathered is None and kept[0] else None
    if lead is None:
        lead = x.shape[:-1] if gathered is None else gathered.shape[:-1]
    products = []
    for key, held, width in zip(keys, kept, widths, strict=True):
        if held is None:
            _product(c, math.prod(lead), hidden, width, bias=bias)
        products.append(t.new((*lead, width), c.dtype) if held is None else held[0])
        t.keep_result(key, products[-1])
    return lead, products


class _Adapters:
    """Adapters of the parts of one projection, with a common input.

    ``split``: the axis that tensor parallelism splits.
    """

    def __init__(
        self,
        c: OpContext,
        x: SymbolicTensor,
        outs: list[SymbolicTensor],
        split: Literal["outputs", "inputs", "nothing"],
    ) -> None:
        self.c, self.x, self.split = c, x, split
        gathered, sums_inner = self._gathered_input(), split == "inputs"
        self.inner = [add_adapter(c, gathered, out, sums_inner) for out in outs]

    def backward(self, widths: list[int]) -> None:
        """Gradients of all adapters; ``widths`` are those of their outputs."""
        gathered, sums_inner = self._gathered_input(), self.split == "outputs"
        for inner, width in zip(self.inner, widths, strict=True):
            adapter_backward(self.c, gathered, inner, width, sums_inner)

    def _gathered_input(self) -> SymbolicTensor:
        return self.c.gather_sequence(self.x) if self.split == "outputs" else self.x


def _join_gradients(t: Tape, grads: tuple[SymbolicTensor, ...]) -> tuple[SymbolicTensor, ...]:
    width = sum(g.elements for g in grads) // (grads[0].shape[0] * grads[0].shape[1])
    joined = t.new((*grads[0].shape[:2], width), grads[0].dtype)
    t.kernel("copy", grads, joined)
    return (joined,)


def _bias_gradient(c: OpContext, grad: SymbolicTensor, width: int) -> SymbolicTensor:
    return c.tape.kernel("sum", (grad,), c.tape.new((width,), c.dtype))


def _weight_gradient(
    c: OpContext, out_width: int, in_width: int, tokens: int
) -> SymbolicTensor | None:
    """Gradient of an (out, in) weight; None if the product added it."""
    adds = c.tape.main_gradients
    c.tape.product(out_width, tokens, in_width, c.dtype, adds, operands=c.operand_format)
    return None if adds else c.tape.new((out_width, in_width), c.dtype)


def row_linear(
    c: OpContext, x: SymbolicTensor, width: int, bias: bool, name: str = ""
) -> SymbolicTensor:
    """A projection split along its inputs, summed over the tensor-parallel ranks.

    ``name``: of the weight, by which an adapter finds it.
    """
    if cuts_products(c) and name:
        return chunked_row_linear(c, x, width, bias, name)
    t, local, shape = c.tape, x.shape[-1], x.shape
    lead, tokens = x.shape[:-1], x.elements // local
    operand_x = operand(t, c.precision, x)
    kept = t.kept_result((name,))
    if kept is None:
        _product(c, tokens, local, width)
    out = t.new((*lead, width), c.dtype) if kept is None else kept[0]
    adapters = _Adapters(c, x, [out], "inputs") if adapted(c, (name,))[0] else None
    if kept is None:
        out = c.reduce(out)
        if bias and not c.stack.fusion.bias_residual:
            t.kernel("add", (out, t.constant((width,), c.dtype)), out)
    t.keep_result((name,), out)
    del kept
    saved = operand_x if c.training.weights else None
    del operand_x

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        has_bias = bias and saved is not None
        grad_bias = t.kernel("sum", (grad,), t.new((width,), c.dtype)) if has_bias else None
        gathered_grad = c.gather_sequence(operand(t, c.precision, grad))
        del grad
        _product(c, tokens, width, local)
        grad_x = t.new(shape, c.dtype)
        if adapters is not None:
            adapters.backward([width])
        if saved is None:
            return (grad_x,)

        def weight_gradient() -> None:
            nonlocal gathered_grad
            gradient = _weight_gradient(c, width, saved.shape[-1], tokens)
            if gradient is not None:
                t.parameter_gradient(gradient)
            del gathered_grad

        t.weight_work(weight_gradient)
        del weight_gradient
        if grad_bias is not None:
            t.parameter_gradient(grad_bias)
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out


def replicated_linear(
    c: OpContext,
    x: SymbolicTensor,
    width: int,
    bias: bool,
    name: str = "",
    differentiable: bool = True,
) -> SymbolicTensor:
    """A replicated projection: each rank runs it on its own tokens.

    ``name``: of the weight, by which an adapter finds it. Input that is data needs no gradient
    (``differentiable`` false).
    """
    c = _layer_context(c, name)
    t, hidden, shape = c.tape, x.shape[-1], x.shape
    lead, tokens = x.shape[:-1], x.elements // hidden
    saved = operand(t, c.precision, x) if c.training.weights else None
    kept = t.kept_result((name,))
    if kept is None:
        _product(c, tokens, hidden, width, bias=bias)
    out = t.new((*lead, width), c.dtype) if kept is None else kept[0]
    t.keep_result((name,), out)
    del kept
    adapters = _Adapters(c, x, [out], "nothing") if adapted(c, (name,))[0] else None

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        operand_grad = operand(t, c.precision, grad)
        bias_source = grad if bias else None
        grad_x = None
        if differentiable:
            _product(c, tokens, width, hidden)
            grad_x = t.new(shape, c.dtype)
        if adapters is not None:
            adapters.backward([width])
        if saved is None:
            return (grad_x,)

        def weight_gradient() -> None:
            gradient = _weight_gradient(c, operand_grad.shape[-1], saved.shape[-1], tokens)
            if gradient is not None:
                t.parameter_gradient(gradient)
            if bias_source is not None:
                total = t.kernel("sum", (bias_source,), t.new((width,), c.dtype))
                t.parameter_gradient(total)

        t.weight_work(weight_gradient)
        return (grad_x,)

    t.record((out,), (x,), backward)
    return out
