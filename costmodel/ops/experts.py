"""The work of experts as symbolic work: grouped products, and rows on their way between ranks.

A grouped product multiplies each group of rows by a weight of its own. The load is assumed even:
every expert gets as many rows as any other, and every rank as many as it sends. How uneven a
router really is stretches the products and the exchanges of the fullest rank.
"""

from __future__ import annotations

from ...spec.model.feed_forward import Activation
from ...spec.parallel.rank_groups import RankGroup
from ...spec.workload.number_formats import rate_name, tensor_bytes
from ..symbolic.tape import SymbolicTensor
from .context import OpContext
from .low_precision import operand, quantised_weight


def grouped_linear(
    c: OpContext, x: SymbolicTensor, experts: int, widths: tuple[int, ...], bias: bool
) -> tuple[SymbolicTensor, ...]:
    """Projections of (rows, in) to local ``widths`` by the weights of ``experts`` experts.

    A stack that joins gate and up projection runs one product of their joint width. Kept for
    the gradients of the weights: ``x``, or its narrow copy; nothing where they are frozen.
    """
    t, (rows, inner) = c.tape, x.shape
    fused = c.stack.fusion.gate_up and len(widths) > 1
    parts = (sum(widths),) if fused else widths
    read = operand(t, c.precision, x)
    joint = []
    for width in parts:
        _product(c, experts, rows, inner, width)
        out = t.new((rows, width), c.dtype)
        if bias:
            t.kernel("add", (out, t.constant((experts, width), c.dtype)), out)
        joint.append(out)
    outs = tuple(joint[0].view(rows, w) for w in widths) if fused else tuple(joint)
    kept = read if c.training.weights else None
    del read

    def backward(*grads: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        joined = _side_by_side(c, grads) if fused else grads
        narrow = tuple(operand(t, c.precision, grad) for grad in joined)
        grad_x = t.new((rows, inner), c.dtype)
        for number, width in enumerate(parts):
            _product(c, experts, rows, width, inner, accumulate=number > 0)
        if kept is None:
            return (grad_x,)
        summed = joined if bias else ()

        def weight_gradients() -> None:
            gradients = [
                _weight_gradient(c, experts, grad.shape[1], *kept.shape) for grad in narrow
            ]
            gradients += [
                t.kernel("sum", (grad,), t.new((experts, grad.shape[1]), c.dtype))
                for grad in summed
            ]
            for gradient in gradients:
                if gradient is not None:
                    t.parameter_gradient(gradient)

        t.weight_work(weight_gradients)
        return (grad_x,)

    t.record(outs, (x,), backward)
    return outs


def _side_by_side(c: OpContext, grads: tuple[SymbolicTensor, ...]) -> tuple[SymbolicTensor, ...]:
    """Gradients of the parts of a joint projection as one tensor."""
    rows = grads[0].shape[0]
    joined = c.tape.new((rows, sum(grad.shape[1] for grad in grads)), c.dtype)
    return (c.tape.kernel("copy", grads, joined),)


def _product(
    c: OpContext, experts: int, rows: int, inner: int, width: int, accumulate: bool = False
) -> None:
    """Rows of ``inner`` values in groups, each times an (inner, width) weight of its own."""
    groups = min(experts, rows)
    read = c.operand_format or c.dtype
    weight = quantised_weight(c.tape, c.precision, experts * inner * width, c.dtype)
    written = (2 if accumulate else 1) * rows * width
    traffic_bytes = tensor_bytes(rows * inner + groups * inner * width, read)
    traffic_bytes += tensor_bytes(written, c.dtype)
    shape, flops = (groups, rows, inner, width), 2 * rows * inner * width
    c.tape.shaped_kernel("grouped_matmul", shape, rate_name(read), flops, traffic_bytes)
    del weight


def _weight_gradient(
    c: OpContext, experts: int, width: int, rows: int, inner: int
) -> SymbolicTensor | None:
    """Gradients of (experts, width, inner) weights; None if the product added them."""
    t, groups = c.tape, min(experts, rows)
    read, written = c.operand_format or c.dtype, groups * width * inner
    traffic_bytes = tensor_bytes(rows * (width + inner), read)
    traffic_bytes += tensor_bytes(written * (2 if t.main_gradients else 1), c.dtype)
    shape, flops = (groups, width, rows, inner), 2 * rows * inner * width
    t.shaped_kernel("grouped_matmul_wgrad", shape, rate_name(read), flops, traffic_bytes)
    return None if t.main_gradients else t.new((experts, width, inner), c.dtype)


def weighted_activation(
    c: OpContext, projected: tuple[SymbolicTensor, ...], weights: SymbolicTensor, kind: Activation
) -> SymbolicTensor:
    """An activation times the weight of each row in one kernel; keeps what went in."""
    t = c.tape
    out = t.kernel(f"weighted_{kind}", (*projected, weights), t.like(projected[0]))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grads, grad_weights = tuple(t.like(x) for x in projected), t.like(weights)
        reads = (grad, *projected, weights, grad_weights, *grads[1:])
        t.kernel(f"weighted_{kind}_backward", reads, grads[0])
        return (*grads, grad_weights)

    t.record((out,), (*projected, weights), backward)
    return out


def exchange(c: OpContext, rows: SymbolicTensor, group: RankGroup, topk: int) -> SymbolicTensor:
    """Rows sent to the ranks of their experts, or back: an all-to-all of equal parts.

    Args:
        c: the layer's tape and stack.
        rows: ``topk`` of each token.
        group: the ranks that hold experts.
        topk: experts of a token.
    """
    if group.size == 1:
        return rows
    t = c.tape
    copies = topk if c.stack.expert_dispatch == "tokens" else 1

    def turn(value: SymbolicTensor) -> SymbolicTensor:
        t.collective("all_to_all", group, value, term="exposed_ep", copies=copies)
        return t.like(value)

    out = turn(rows)
    t.record((out,), (rows,), lambda grad: (turn(grad),))
    return out


def join_rows(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    """The rows of all ranks that split the same experts."""
    if group.size == 1:
        return rows
    out = _gather(c, rows, group)
    c.tape.record((out,), (rows,), lambda grad: (_scatter(c, grad, group),))
    return out


def sum_rows(c: OpContext, rows: SymbolicTensor, group: RankGroup) -> SymbolicTensor:
    """Each rank's own rows, summed over the ranks that split their experts."""
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
    """Rows that came rank by rank, put expert by expert, or back: a copy."""
    if experts == 1 or sources == 1:
        return rows
    t = c.tape

    def turn(value: SymbolicTensor) -> SymbolicTensor:
        return t.kernel("copy", (value,), t.like(value))

    out = turn(rows)
    t.record((out,), (rows,), lambda grad: (turn(grad),))
    return out


def copy_to_tensor_parallel(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """Goes into work that tensor-parallel ranks split: gradients are summed over them."""
    if c.tp == 1:
        return x
    out = x.view(*x.shape)
    c.tape.record((out,), (x,), lambda grad: (c.reduce(grad),))
    return out


def reduce_from_tensor_parallel(c: OpContext, x: SymbolicTensor) -> SymbolicTensor:
    """Sum over the tensor-parallel ranks of what each made of its part."""
    if c.tp == 1:
        return x
    out = c.reduce(x)
    c.tape.record((out,), (x,), lambda grad: (grad,))
    return out
