"""Routing as symbolic work: which experts a token goes to, and the order that puts it there.

Plain forms follow eager torch: scores in fp32, a sort of all assignments, indexed copies, sums
that scatter. A stack that fuses the router or the permutation runs each as one kernel. What is
left out, being a few numbers a token or an expert: the loss that balances the load and the
noise or bias that some routers add to their choice.
"""

from __future__ import annotations

from ...spec.model.feed_forward import Moe, group_votes
from ..symbolic.tape import SymbolicTensor, Tape
from .context import OpContext, cast

INDEX = "int64"


def route(c: OpContext, moe: Moe, logits: SymbolicTensor) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Weights and numbers of each token's topk experts, (tokens, topk) in fp32 and int64.

    Kept for the backward pass of (…, experts) ``logits``: the scores of all experts, which were
    chosen, and the weights.
    """
    t, tokens = c.tape, logits.elements // moe.experts
    shape, dtype, fused = logits.shape, logits.dtype, c.stack.fusion.router
    scores = t.new((tokens, moe.experts), "fp32")
    chosen = t.new((tokens, moe.topk), INDEX)
    weights = t.new((tokens, moe.topk), "fp32")
    if fused:
        t.kernel("router", (logits, scores, chosen), weights)
    else:
        t.kernel(moe.score, (cast(t, logits, "fp32"),), scores)
        _choose(t, moe, scores, chosen, weights)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if fused:
            kept = (grad, weights, scores, chosen)
            return (t.kernel("router_backward", kept, t.new(shape, dtype)),)
        along = t.new((tokens, 1), "fp32")
        t.kernel("sum", (t.kernel("mul", (grad, weights), t.like(grad)),), along)
        grad = t.kernel("sub", (grad, along), t.like(grad))
        t.kernel("div", (grad, along), grad)
        spread = t.kernel("zeros", (), t.like(scores))
        t.kernel("scatter_add", (grad, chosen), grad)
        grad = t.kernel(f"{moe.score}_backward", (spread, scores), t.like(scores))
        del spread
        return (cast(t, grad, dtype).view(*shape),)

    t.record((weights,), (logits,), backward)
    return weights, chosen


def _choose(
    t: Tape, moe: Moe, scores: SymbolicTensor, chosen: SymbolicTensor, weights: SymbolicTensor
) -> None:
    """The topk experts of each token, among the best groups of them, weights adding up to 1."""
    if moe.groups_per_token < moe.groups:
        best = t.new((weights.shape[0], moe.groups), "fp32")
        t.kernel("topk", (scores,), best)
        if (votes := group_votes(moe)) > 1:
            t.kernel("sum", (t.new((*best.shape, votes), "fp32"),), best)
        t.kernel("topk", (best,), best)
        groups = t.new((weights.shape[0], moe.groups_per_token), INDEX)
        outside = t.kernel("ones", (), t.new(best.shape, "bool"))
        t.kernel("scatter_add", (groups,), groups)
        t.kernel("masked_fill", (scores, outside), t.like(scores))
        del best, groups, outside
    t.kernel("topk", (scores, chosen), weights)
    total = t.kernel("sum", (weights,), t.new((weights.shape[0], 1), "fp32"))
    t.kernel("div", (weights, total), weights)


def expert_order(t: Tape, chosen: SymbolicTensor, rows: int) -> SymbolicTensor:
    """Assignments sorted by expert: where each of ``rows`` rows comes from."""
    order = t.new((rows,), INDEX)
    return t.kernel("sort", (chosen, order), order)


def permute(c: OpContext, x: SymbolicTensor, order: SymbolicTensor) -> SymbolicTensor:
    """A row for each assignment of the tokens in (…, width) ``x``, in ``order`` of experts."""
    t = c.tape
    shape, rows = x.shape, order.elements
    out = t.new((rows, shape[-1]), x.dtype)
    t.kernel("permute" if c.stack.fusion.permute else "gather", (out, order), out)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        return (_sum_rows(c, grad, order, shape),)

    t.record((out,), (x,), backward)
    return out


def permute_weights(c: OpContext, weights: SymbolicTensor, order: SymbolicTensor) -> SymbolicTensor:
    """The weight of each row, (rows, 1), for stacks that apply it inside the experts."""
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
    """The rows of each token added up, in the shape of the tokens."""
    t = c.tape
    if c.stack.fusion.permute:
        return t.kernel("unpermute", (rows, order), t.new(shape, rows.dtype))
    out = t.kernel("zeros", (), t.new(shape, rows.dtype))
    t.kernel("scatter_add", (rows, order), rows)
    return out


def combine(
    c: OpContext, rows: SymbolicTensor, order: SymbolicTensor, shape: tuple[int, ...]
) -> SymbolicTensor:
    """Rows that carry their weight already, added up token by token."""
    t, width = c.tape, rows.shape
    out = _sum_rows(c, rows, order, shape)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        spread = t.new(width, grad.dtype)
        op = "permute" if c.stack.fusion.permute else "gather"
        return (t.kernel(op, (spread, order), spread),)

    t.record((out,), (rows,), backward)
    return out


def weighted_combine(
    c: OpContext,
    rows: SymbolicTensor,
    weights: SymbolicTensor,
    order: SymbolicTensor,
    shape: tuple[int, ...],
) -> SymbolicTensor:
    """Rows times their weights, added up token by token; keeps rows and weights.

    Plain, products and sums are in fp32, which the weights are.
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
        spread = t.like(rows, "fp32")
        t.kernel("gather", (spread, order), spread)
        t.kernel("mul", (spread, weights), grad_rows)
        t.kernel("mul", (spread, rows), spread)
        t.kernel("sum", (spread,), grad_weights)
        return grad_rows, grad_weights

    t.record((out,), (rows, weights), backward)
    return out
