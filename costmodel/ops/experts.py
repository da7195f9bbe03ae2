"""Grouped products of experts, and the exchange of rows between ranks.

A grouped product multiplies each group of rows by its own weight. Load is assumed even over experts
and ranks; router imbalance stretches the fullest rank's work elsewhere.
"""

from __future__ import annotations

from ...spec.model.feed_forward import Activation
from ...spec.parallel.rank_groups import RankGroup
from ...spec.workload.number_formats import rate_name, tensor_bytes
from ..symbolic.tape import SymbolicTensor
from .context import OpContext
from .low_precision import dequantized_weight, operand, quantized_weight


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
            _product(c, experts, rows, inner, width)
        out = t.new((rows, width), c.dtype) if kept is None else kept[0]
        if bias and kept is None:
            t.kernel("add", (out, t.constant((experts, width), c.dtype)), out)
        t.keep_result(key, out)
        products.append(out)
    outs = tuple(products[0].view(rows, w) for w in widths) if fused else tuple(products)
    saved = operand_x if c.training.weights else None
    del operand_x

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = _side_by_side(c, grads) if fused else grads
        operand_grads = tuple(operand(t, c.precision, grad) for grad in joined)
        grad_x = t.new((rows, inner), c.dtype)
        for number, width in enumerate(product_widths):
            _product(c, experts, rows, width, inner, accumulate=number > 0)
        if saved is None:
            return (grad_x,)
        bias_grads = joined if bias else ()

        def weight_gradients() -> None:
            gradients = [
                _weight_gradient(c, experts, grad.shape[1], *saved.shape) for grad in operand_grads
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


def _side_by_side(c: OpContext, grads: tuple[SymbolicTensor, ...]) -> tuple[SymbolicTensor, ...]:
    rows = grads[0].shape[0]
    joined = c.tape.new((rows, sum(grad.shape[1] for grad in grads)), c.dtype)
    return (c.tape.kernel("copy", grads, joined),)


def _product(
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


def _weight_gradient(
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


def exchange(
    c: OpContext, rows: SymbolicTensor, group: RankGroup, topk: int, name: str = ""
) -> SymbolicTensor:
    """Send rows to their experts' ranks, or back: an even all-to-all.

    ``group``: ranks that hold experts; ``topk``: rows per token; ``name``: of the result.
    """
    if group.size == 1:
        return rows
    t = c.tape
    copies = topk if c.stack.expert_dispatch == "tokens" else 1

    def send(value: SymbolicTensor) -> SymbolicTensor:
        t.collective("all_to_all", group, value, term="exposed_ep", copies=copies)
        return t.like(value)

    kept = t.kept_result((name,)) if name else None
    out = send(rows) if kept is None else kept[0]
    if name:
        t.keep_result((name,), out)
    del kept
    t.record((out,), (rows,), lambda grad: (send(grad),))
    return out


def join_rows(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    """Gather the rows of all ranks of the same experts."""
    if group.size == 1:
        return rows
    out = _gather(c, rows, group)
    c.tape.record((out,), (rows,), lambda grad: (_scatter(c, grad, group),))
    return out


def sum_rows(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    """Sum rows over the ranks of their experts; each keeps its own."""
    if group.size == 1:
        return rows
    out = _scatter(c, rows, group)
    c.tape.record((out,), (rows,), lambda grad: (_gather(c, grad, group),))
    return out


def _gather(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    out = c.tape.new((rows.shape[0] * group.size, *rows.shape[1:]), rows.dtype)
    c.tape.collective("all_gather", group, out)
    return out


def _scatter(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    c.tape.collective("reduce_scatter", group, rows)
    return c.tape.new((rows.shape[0] // group.size, *rows.shape[1:]), rows.dtype)


def sort_by_expert(
    c: OpContext, rows: SymbolicTensor, experts: int, sources: int
) -> SymbolicTensor:
    """Reorder rows from rank-major to expert-major, or back: a copy."""
    if experts == 1 or sources == 1:
        return rows
    t = c.tape

    def reorder(value: SymbolicTensor) -> SymbolicTensor:
        return t.kernel("copy", (value,), t.like(value))

    out = reorder(rows)
    t.record((out,), (rows,), lambda grad: (reorder(grad),))
    return out


def copy_to_tensor_parallel(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """Enter tensor-parallel work: gradients are summed over the ranks."""
    if c.tp == 1:
        return x
    out = x.view(*x.shape)
    c.tape.record((out,), (x,), lambda grad: (c.reduce(grad),))
    return out


def reduce_from_tensor_parallel(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """Sum the partial results of the tensor-parallel ranks."""
    if c.tp == 1:
        return x
    out = c.reduce(x)
    c.tape.record((out,), (x,), lambda grad: (grad,))
    return out
