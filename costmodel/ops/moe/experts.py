"""Grouped products of experts.

A grouped product multiplies each group of rows by its own weight. Rows are those of the fullest
rank, and assumed even over the experts that it holds.
"""

from __future__ import annotations

from ....spec.model.feed_forward import Activation
from ....spec.workload.number_formats import rate_name, tensor_bytes
from ...symbolic.tape import SymbolicTensor
from ..context import OpContext
from ..low_precision import dequantized_weight, operand, quantized_weight


def grouped_linear(
    c: OpContext,
    x: SymbolicTensor,
    experts: int,
    widths: tuple[int, ...],
    bias: bool,
    names: tuple[str, ...],
) -> tuple[SymbolicTensor, ...]:
    """Projections of (rows, in) to local ``widths`` by weights of ``experts`` experts.

    A stack may fuse gate and up projections into one product. Kept for weight gradients: ``x`` or
    its low-precision copy; nothing where weights are frozen.
    """
    t, (rows, inner) = c.tape, x.shape
    fused = c.stack.fusion.gate_up and len(widths) > 1
    product_widths = (sum(widths),) if fused else widths
    operand_x = operand(t, c.precision, x)
    products = []
    for key, width in zip([names] if fused else [(n,) for n in names], product_widths, strict=True):
        kept = t.kept_result(key)
        if kept is None:
            grouped_product(c, experts, rows, inner, width)
        out = t.new((rows, width), c.dtype) if kept is None else kept[0]
        if bias and kept is None:
            t.kernel("add", (out, t.constant((experts, width), c.dtype)), out)
        t.keep_result(key, out)
        products.append(out)
    outs = tuple(products[0].view(rows, w) for w in widths) if fused else tuple(products)
    saved = operand_x if c.training.weights else None
    del operand_x

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = side_by_side(c, grads) if fused else grads
        operand_grads = tuple(operand(t, c.precision, grad) for grad in joined)
        grad_x = t.new((rows, inner), c.dtype)
        for number, width in enumerate(product_widths):
            grouped_product(c, experts, rows, width, inner, accumulate=number > 0)
        if saved is None:
            return (grad_x,)
        bias_grads = joined if bias else ()

        def weight_gradients() -> None:
            gradients = [
                grouped_weight_gradient(c, experts, grad.shape[1], *saved.shape)
                for grad in operand_grads
            ]
            gradients += [
                t.kernel("sum", (grad,), t.new((experts, grad.shape[1]), c.dtype))
                for grad in bias_grads
            ]
            for gradient in gradients:
                if gradient is not None:
                    t.parameter_gradient(gradient)

        t.weight_work(weight_gradients)
        return (grad_x,)

    t.record(outs, (x,), backward)
    return outs


def side_by_side(c: OpContext, grads: tuple[SymbolicTensor, ...]) -> tuple[SymbolicTensor, ...]:
    """Gradients of projections that one product makes, in one tensor: a copy."""
    rows = grads[0].shape[0]
    joined = c.tape.new((rows, sum(grad.shape[1] for grad in grads)), c.dtype)
    return (c.tape.kernel("copy", grads, joined),)


def grouped_product(
    c: OpContext, experts: int, rows: int, inner: int, width: int, accumulate: bool = False
) -> None:
    """Grouped rows of ``inner`` values times their groups' (inner, width) weights."""
    groups = min(experts, rows)
    read_format = c.operand_format or c.dtype
    base = dequantized_weight(c.tape, c.base, (experts, width, inner), c.dtype)
    weight = quantized_weight(c.tape, c.precision, experts * inner * width, c.dtype)
    written = (2 if accumulate else 1) * rows * width
    traffic_bytes = tensor_bytes(rows * inner + groups * inner * width, read_format)
    traffic_bytes += tensor_bytes(written, c.dtype)
    shape, flops = (groups, rows, inner, width), 2 * rows * inner * width
    c.tape.shaped_kernel("grouped_matmul", shape, rate_name(read_format), flops, traffic_bytes)
    del base, weight


def grouped_weight_gradient(
    c: OpContext, experts: int, width: int, rows: int, inner: int
) -> SymbolicTensor | None:
    """Gradients of (experts, width, inner) weights; None if the product added them."""
    t, groups = c.tape, min(experts, rows)
    read_format, written = c.operand_format or c.dtype, groups * width * inner
    traffic_bytes = tensor_bytes(rows * (width + inner), read_format)
    traffic_bytes += tensor_bytes(written * (2 if t.main_gradients else 1), c.dtype)
    shape, flops = (groups, width, rows, inner), 2 * rows * inner * width
    t.shaped_kernel("grouped_matmul_wgrad", shape, rate_name(read_format), flops, traffic_bytes)
    return None if t.main_gradients else t.new((experts, width, inner), c.dtype)


def weighted_activation(
    c: OpContext, projected: tuple[SymbolicTensor, ...], weights: SymbolicTensor, kind: Activation
) -> SymbolicTensor:
    """Activation times each row's weight in one kernel; keeps its inputs."""
    t = c.tape
    out = t.kernel(f"weighted_{kind}", (*projected, weights), t.like(projected[0]))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grads, grad_weights = tuple(t.like(x) for x in projected), t.like(weights)
        reads = (grad, *projected, weights, grad_weights, *grads[1:])
        t.kernel(f"weighted_{kind}_backward", reads, grads[0])
        return (*grads, grad_weights)

    t.record((out,), (*projected, weights), backward)
    return out
