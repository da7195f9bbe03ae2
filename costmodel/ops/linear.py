"""Linear layers, split along outputs (column), along inputs (row), or replicated.

Products read :func:`operand` of their inputs: themselves or low-precision copies. Kept are only
tensors that a gradient needs: the operand of a trained weight, the input of an adapter, nothing of
a frozen layer.
"""

from __future__ import annotations

import math
from typing import Literal

from ..symbolic.tape import SymbolicTensor
from .chunked_linear import chunked_column_linear, chunked_row_linear, cuts_products
from .context import OpContext
from .lora import adapted, adapter_backward, add_adapter
from .low_precision import UNQUANTIZED, dequantized_weight, operand, quantized_weight
from .projections import (
    Product,
    Projections,
    add_biases,
    biased_gradients,
    joined_gradients,
    split_products,
    summed_gradients,
)


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
    return column_projections(c, x, (Projections(widths, bias, fused, names),), shared)


def column_projections(
    c: OpContext, x: SymbolicTensor, groups: tuple[Projections, ...], shared: bool = False
) -> tuple[SymbolicTensor, ...]:
    """As :func:`column_linear`, of several groups of projections of one input."""
    names = tuple(name for group in groups for name in group.names)
    c = _layer_context(c, names[0] if names else "", shared)
    if cuts_products(c) and names and not shared:
        return chunked_column_linear(c, x, groups)
    t, hidden = c.tape, x.shape[-1]
    widths = tuple(width for group in groups for width in group.widths)
    adapted_outs = [n for n, has in enumerate(adapted(c, names)) if has]
    operand_x = operand(t, c.precision, x)
    lead, products = _products(c, operand_x, [item for group in groups for item in group.products])
    tokens = math.prod(lead)
    out_widths = [item.width for group in groups for item in group.products]
    outs = split_products(groups, lead, products)
    adapters = _Adapters(c, x, [outs[n] for n in adapted_outs], "outputs") if adapted_outs else None
    saved = operand_x if c.training.weights else None
    del operand_x

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = joined_gradients(t, groups, grads)
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
        output_grads = operand_grads, [*biased_gradients(groups, joined)]

        def weight_gradients() -> None:
            nonlocal regathered
            gradients = [_weight_gradient(c, width, hidden, tokens) for width in out_widths]
            del regathered
            biases = [_bias_gradient(c, *item) for item in output_grads[1]]
            for gradient in [*(g for g in gradients if g is not None), *biases]:
                t.parameter_gradient(gradient, shared)

        t.weight_work(weight_gradients)
        return (grad_x,)

    t.record(outs, (x,), backward)
    return outs


def _products(
    c: OpContext, x: SymbolicTensor, wanted: list[Product]
) -> tuple[tuple[int, ...], list[SymbolicTensor]]:
    """Products of the whole sequence, save those kept by name; their leading sizes too."""
    t, hidden = c.tape, x.shape[-1]
    keys = [item.names for item in wanted]
    kept = [t.kept_result(key) for key in keys]
    gathered = None if all(kept) else c.gather_sequence(x)
    lead = kept[0][0].shape[:-1] if gathered is None and kept[0] else None
    if lead is None:
        lead = x.shape[:-1] if gathered is None else gathered.shape[:-1]
    products = []
    for (key, width, bias), held in zip(wanted, kept, strict=True):
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
    return row_projections(c, (x,), width, (bias,), (name,))


def row_projections(
    c: OpContext,
    xs: tuple[SymbolicTensor, ...],
    width: int,
    biases: tuple[bool, ...],
    names: tuple[str, ...],
) -> SymbolicTensor:
    """The sum of several such projections, summed over the ranks once.

    Of several none has an adapter; their sum has all their names.
    """
    if cuts_products(c) and names[0]:
        return chunked_row_linear(c, xs, width, biases, names)
    t, shapes, inner = c.tape, [x.shape for x in xs], [x.shape[-1] for x in xs]
    lead, tokens = xs[0].shape[:-1], xs[0].elements // inner[0]
    operands = [operand(t, c.precision, x) for x in xs]
    kept = t.kept_result(names)
    if kept is None:
        for number, local in enumerate(inner):
            _product(c, tokens, local, width, accumulate=number > 0)
    out = t.new((*lead, width), c.dtype) if kept is None else kept[0]
    has_adapter = len(xs) == 1 and adapted(c, names)[0]
    adapters = _Adapters(c, xs[0], [out], "inputs") if has_adapter else None
    if kept is None:
        out = c.reduce(out)
        add_biases(c, out, biases)
    t.keep_result(names, out)
    del kept
    saved = operands if c.training.weights else None
    del operands

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_biases = [] if saved is None else summed_gradients(c, grad, biases)
        gathered_grad = c.gather_sequence(operand(t, c.precision, grad))
        del grad
        grad_xs = []
        for shape, local in zip(shapes, inner, strict=True):
            _product(c, tokens, width, local)
            grad_xs.append(t.new(shape, c.dtype))
        if adapters is not None:
            adapters.backward([width])
        if saved is None:
            return tuple(grad_xs)

        def weight_gradient() -> None:
            nonlocal gathered_grad
            made = [_weight_gradient(c, width, x.shape[-1], tokens) for x in saved]
            for gradient in (one for one in made if one is not None):
                t.parameter_gradient(gradient)
            del gathered_grad

        t.weight_work(weight_gradient)
        del weight_gradient
        for grad_bias in grad_biases:
            t.parameter_gradient(grad_bias)
        return tuple(grad_xs)

    t.record((out,), xs, backward)
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
