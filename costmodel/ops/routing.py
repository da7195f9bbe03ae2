"""Routing of tokens to experts, and the permutation that orders their rows.

Plain forms follow eager torch: scores in fp32, a sort of all assignments, indexed copies,
scatter-adds. Fused, router and permutation are a kernel each. Left out, being a few numbers:
load-balancing loss, routers' noise or bias.
"""

from __future__ import annotations

from ...spec.model.feed_forward import Moe, group_votes
from ..symbolic.tape import SymbolicTensor, Tape
from .context import OpContext, cast

INDEX = "int64"


def route(c: OpContext, moe: Moe, logits: SymbolicTensor) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Weights (fp32) and indices (int64) of topk experts, (tokens, topk).

    Kept for the backward: all scores of the (…, experts) ``logits``, indices and weights.
    """
    t, tokens = c.tape, logits.elements // moe.experts
    shape, dtype, fused = logits.shape, logits.dtype, c.stack.fusion.router
    scores = t.new((tokens, moe.experts), "fp32")
    expert_indices = t.new((tokens, moe.topk), INDEX)
    weights = t.new((tokens, moe.topk), "fp32")
    if fused:
        t.kernel("router", (logits, scores, expert_indices), weights)
    else:
        t.kernel(moe.score, (cast(t, logits, "fp32"),), scores)
        _choose(t, moe, scores, expert_indices, weights)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if fused:
            saved = (grad, weights, scores, expert_indices)
            return (t.kernel("router_backward", saved, t.new(shape, dtype)),)
        if moe.weigh == "outputs":
            row_sum = t.new((tokens, 1), "fp32")
            t.kernel("sum", (t.kernel("mul", (grad, weights), t.like(grad)),), row_sum)
            grad = t.kernel("sub", (grad, row_sum), t.like(grad))
            t.kernel("div", (grad, row_sum), grad)
        scattered = t.kernel("zeros", (), t.like(scores))
        t.kernel("scatter_add", (grad, expert_indices), grad)
        grad = t.kernel(f"{moe.score}_backward", (scattered, scores), t.like(scores))
        del scattered
        return (cast(t, grad, dtype).view(*shape),)

    t.record((weights,), (logits,), backward)
    return weights, expert_indices


def _choose(
    t: Tape,
    moe: Moe,
    scores: SymbolicTensor,
    expert_indices: SymbolicTensor,
    weights: SymbolicTensor,
) -> None:
    """Choose topk experts among the best groups; weights sum to 1, unless they scale inputs."""
    if moe.groups_per_token < moe.groups:
        group_scores = t.new((weights.shape[0], moe.groups), "fp32")
        t.kernel("topk", (scores,), group_scores)
        if (votes := group_votes(moe)) > 1:
            t.kernel("sum", (t.new((*group_scores.shape, votes), "fp32"),), group_scores)
        t.kernel("topk", (group_scores,), group_scores)
        groups = t.new((weights.shape[0], moe.groups_per_token), INDEX)
        outside = t.kernel("ones", (), t.new(group_scores.shape, "bool"))
        t.kernel("scatter_add", (groups,), groups)
        t.kernel("masked_fill", (scores, outside), t.like(scores))
        del group_scores, groups, outside
    t.kernel("topk", (scores, expert_indices), weights)
    if moe.weigh == "inputs":
        return
    total = t.kernel("sum", (weights,), t.new((weights.shape[0], 1), "fp32"))
    t.kernel("div", (weights, total), weights)


def expert_order(t: Tape, expert_indices: SymbolicTensor, rows: int) -> SymbolicTensor:
    """Assignments sorted by expert: the source of each of ``rows`` rows."""
    order = t.new((rows,), INDEX)
    return t.kernel("sort", (expert_indices, order), order)


def permute(c: OpContext, x: SymbolicTensor, order: SymbolicTensor) -> SymbolicTensor:
    """One row per assignment of (…, width) ``x``, in ``order`` of experts."""
    t = c.tape
    shape, rows = x.shape, order.elements
    out = t.new((rows, shape[-1]), x.dtype)
    t.kernel("permute" if c.stack.fusion.permute else "gather", (out, order), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (_sum_rows(c, grad, order, shape),)

    t.record((out,), (x,), backward)
    return out


def permute_weights(c: OpContext, weights: SymbolicTensor, order: SymbolicTensor) -> SymbolicTensor:
    """The weight of each row, (rows, 1), for application inside the experts."""
    t, shape = c.tape, weights.shape
    out = t.new((order.elements, 1), weights.dtype)
    t.kernel("gather", (out, order), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (t.kernel("scatter_add", (grad, order), t.new(shape, grad.dtype)),)

    t.record((out,), (weights,), backward)
    return out


def _sum_rows(
    c: OpContext, rows: SymbolicTensor, order: SymbolicTensor, shape: tuple[int, ...]
) -> SymbolicTensor:
    t = c.tape
    if c.stack.fusion.permute:
        return t.kernel("unpermute", (rows, order), t.new(shape, rows.dtype))
    out = t.kernel("zeros", (), t.new(shape, rows.dtype))
    t.kernel("scatter_add", (rows, order), rows)
    return out


def combine(
    c: OpContext, rows: SymbolicTensor, order: SymbolicTensor, shape: tuple[int, ...]
) -> SymbolicTensor:
    """Sum already weighted rows by token."""
    t, rows_shape = c.tape, rows.shape
    out = _sum_rows(c, rows, order, shape)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        scattered = t.new(rows_shape, grad.dtype)
        op = "permute" if c.stack.fusion.permute else "gather"
        return (t.kernel(op, (scattered, order), scattered),)

    t.record((out,), (rows,), backward)
    return out


def weighted_rows(
    c: OpContext, rows: SymbolicTensor, weights: SymbolicTensor
) -> SymbolicTensor:
    """Rows times their weights, before the experts; keeps both."""
    t = c.tape
    out = t.kernel("mul", (rows, weights), t.like(rows))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        product = t.kernel("mul", (grad, rows), t.like(rows))
        grad_weights = t.kernel("sum", (product,), t.like(weights))
        return t.kernel("mul", (grad, weights), t.like(rows)), grad_weights

    t.record((out,), (rows, weights), backward)
    return out


def weighted_combine(
    c: OpContext,
    rows: SymbolicTensor,
    weights: SymbolicTensor,
    order: SymbolicTensor,
    shape: tuple[int, ...],
) -> SymbolicTensor:
    """Sum rows times their weights by token; keeps rows and weights.

    The plain form multiplies and sums in fp32, the weights' format.
    """
    t = c.tape
    if c.stack.fusion.permute:
        out = t.kernel("unpermute", (rows, weights, order), t.new(shape, rows.dtype))
    else:
        wide = t.kernel("mul", (rows, weights), t.like(rows, "fp32"))
        out = cast(t, _sum_rows(c, wide, order, shape), rows.dtype)
        del wide

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_rows, grad_weights = t.like(rows), t.like(weights)
        if c.stack.fusion.permute:
            t.kernel("unpermute_backward", (grad, rows, weights, order, grad_weights), grad_rows)
            return grad_rows, grad_weights
        grad = cast(t, grad, "fp32")
        scattered = t.like(rows, "fp32")
        t.kernel("gather", (scattered, order), scattered)
        t.kernel("mul", (scattered, weights), grad_rows)
        t.kernel("mul", (scattered, rows), scattered)
        t.kernel("sum", (scattered,), grad_weights)
        return grad_rows, grad_weights

    t.record((out,), (rows, weights), backward)
    return out
