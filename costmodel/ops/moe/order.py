"""Order of rows by expert: a sort of all assignments, indexed copies, sums back.

Plain forms follow eager torch: indexed copies and scatter-adds. Fused, a permutation is one kernel.
"""

from __future__ import annotations

from ....spec.model.feed_forward import Moe
from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext

INDEX = "int64"


def expert_order(t: Tape, expert_indices: SymbolicTensor, rows: int) -> SymbolicTensor:
    """Assignments sorted by expert: the source of each of ``rows`` rows."""
    order = t.new((rows,), INDEX)
    return t.kernel("sort", (expert_indices, order), order)


def limited_order(
    c: OpContext, moe: Moe, expert_indices: SymbolicTensor, weights: SymbolicTensor, rows: int
) -> SymbolicTensor:
    """Order of ``rows`` rows: of all assignments, or of those within each expert's capacity."""
    t = c.tape
    if moe.capacity_factor is None:
        return expert_order(t, expert_indices, rows)
    choices = expert_indices
    if moe.topk > 1:  # by choice, then token
        choices = t.kernel("copy", (choices,), t.like(choices))
    by_probability = moe.capacity_order == "probability"
    chances = weights
    if moe.topk > 1 and (moe.gate == "gshard" or by_probability):
        chances = t.kernel("copy", (weights,), t.like(weights))
    if moe.gate == "gshard":
        dropped = t.kernel("eq", (chances,), t.new(weights.shape, "bool"))
        choices = t.kernel("masked_fill", (choices, dropped), t.like(choices))
    if by_probability:
        ranked = t.new(expert_indices.shape, INDEX)
        t.kernel("sort", (chances, ranked), t.like(chances))
        choices = t.kernel("copy", (choices, ranked), t.like(choices))
    sources = t.like(choices)
    taken = t.kernel("sort", (choices, sources), t.like(choices))
    within = t.kernel("sub", (t.kernel("copy", (taken,), t.like(taken)), taken), t.like(taken))
    slot = t.kernel("mul", (taken,), t.like(taken))
    t.kernel("add", (slot, within), slot)
    late = t.kernel("ge", (within,), t.new(within.shape, "bool"))
    t.kernel("masked_fill", (slot, late), slot)
    if moe.gate == "gshard":
        t.kernel("clamp", (slot,), slot)
    if by_probability:
        sources = t.kernel("copy", (sources, ranked), t.like(sources))
    source = t.kernel("remainder", (sources,), t.like(sources))
    t.kernel("mul", (source,), source)
    t.kernel("add", (source, sources), source)
    for dtype in (INDEX, "fp32"):
        t.kernel("zeros", (), t.new((rows + 1,), dtype))
        t.kernel("scatter_add", (slot,), slot)
    return t.new((rows,), INDEX)


def permute(c: OpContext, x: SymbolicTensor, order: SymbolicTensor) -> SymbolicTensor:
    """One row per assignment of (…, width) ``x``, in ``order`` of experts."""
    t = c.tape
    shape, rows = x.shape, order.elements
    out = t.new((rows, shape[-1]), x.dtype)
    t.kernel("permute" if c.stack.fusion.permute else "gather", (out, order), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (sum_by_token(c, grad, order, shape),)

    t.record((out,), (x,), backward)
    return out


def permute_weights(
    c: OpContext, moe: Moe, weights: SymbolicTensor, order: SymbolicTensor
) -> SymbolicTensor:
    """The weight of each row, (rows, 1), for application inside the experts."""
    t, shape = c.tape, weights.shape
    filled = moe.capacity_factor is not None and moe.gate != "expert_choice"
    out = t.new((order.elements, 1), weights.dtype)
    t.kernel("gather", (out, order), out)
    if filled:
        t.kernel("mul", (out, out), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if filled:
            grad = t.kernel("mul", (grad, grad), t.like(grad))
        out = t.new(shape, grad.dtype)
        if moe.fills_rows:
            t.kernel("zeros", (), out)
            t.kernel("scatter_add", (grad, order), grad)
            return (out,)
        return (t.kernel("scatter_add", (grad, order), out),)

    t.record((out,), (weights,), backward)
    return out


def sum_by_token(
    c: OpContext, rows: SymbolicTensor, order: SymbolicTensor, shape: tuple[int, ...]
) -> SymbolicTensor:
    """Sum rows of the same token: (…, width) of ``shape``."""
    t = c.tape
    if c.stack.fusion.permute:
        return t.kernel("unpermute", (rows, order), t.new(shape, rows.dtype))
    out = t.kernel("zeros", (), t.new(shape, rows.dtype))
    t.kernel("scatter_add", (rows, order), rows)
    return out


def weighted_rows(c: OpContext, rows: SymbolicTensor, weights: SymbolicTensor) -> SymbolicTensor:
    """Rows times their weights, before the experts; keeps both."""
    t = c.tape
    out = t.kernel("mul", (rows, weights), t.like(rows))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        product = t.kernel("mul", (grad, rows), t.like(rows))
        grad_weights = t.kernel("sum", (product,), t.like(weights))
        return t.kernel("mul", (grad, weights), t.like(rows)), grad_weights

    t.record((out,), (rows, weights), backward)
    return out
