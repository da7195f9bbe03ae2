"""Gates: each token's experts and their weights.

The plain form follows eager torch: scores in fp32. Fused, the router is one kernel, with what
balances it beside.
"""

from __future__ import annotations

from ....spec.model.feed_forward import Moe, group_votes
from ...symbolic.tape import SymbolicTensor, Tape
from ..context import OpContext, cast
from ..linear import replicated_linear
from .balance import Balanced, add_logit_gradients, add_score_gradients, balanced
from .cosine import cosine_logits
from .order import INDEX


def router_logits(c: OpContext, moe: Moe, x: SymbolicTensor, sequence_split: int) -> SymbolicTensor:
    """Logits (seq, batch, outputs) of ``x``; X-MoE's are cosines."""
    balance = moe.balance
    if balance is not None and balance.jitter and balance.jitters == "router":
        x = jittered(c, x, sequence_split)
    if moe.gate_width is None:
        return replicated_linear(c, x, moe.router_outputs, moe.router_bias, "router")
    down = replicated_linear(c, x, moe.gate_width, moe.router_bias, "router_down")
    return cosine_logits(c, down, moe.experts)


def jittered(c: OpContext, x: SymbolicTensor, sequence_split: int) -> SymbolicTensor:
    """``x`` (seq, batch, width) times random factors, which it keeps."""
    t, drawn = c.tape, uniform(c, x.shape, sequence_split, x.dtype)
    noise = t.constant(x.shape, x.dtype)  # this rank's part of what is drawn
    out = t.kernel("mul", (x, noise), t.like(x))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        nonlocal drawn
        result = t.kernel("mul", (grad, noise), t.like(grad))
        del drawn
        return (result,)

    t.record((out,), (x,), backward)
    return out


def uniform(
    c: OpContext, shape: tuple[int, ...], sequence_split: int, dtype: str
) -> SymbolicTensor:
    """Random numbers of (seq, batch, width) tokens, drawn for whole samples one by one."""
    seq, batch, width = shape
    whole = seq * sequence_split
    drawn = c.tape.new((batch, whole, width), dtype)
    for _ in range(batch):
        c.tape.kernel("uniform", (), c.tape.constant((whole, width), dtype))
    return drawn


def route(
    c: OpContext, moe: Moe, logits: SymbolicTensor, sequence_split: int = 1
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Weights (fp32) and indices (int64) of topk experts, (tokens, topk).

    Kept for the backward: all scores of the (…, experts) ``logits``, indices and weights.
    """
    t, tokens = c.tape, logits.elements // moe.experts
    shape, dtype, fused = logits.shape, logits.dtype, c.stack.fusion.router
    scores = t.new((tokens, moe.experts), "fp32")
    expert_indices = t.new((tokens, moe.topk), INDEX)
    weights = t.new((tokens, moe.topk), "fp32")
    wide = logits
    if fused:
        t.kernel("router", (logits, scores, expert_indices), weights)
    else:
        wide = cast(t, logits, "fp32")
        t.kernel(moe.score, (wide,), scores)
        if moe.balance is None:
            del wide
        _choose(t, moe, scores, expert_indices, weights)
    kept = weights
    if moe.gate == "gshard":
        weights, kept = _second_kept(c, weights, shape, sequence_split)
    held = Balanced()
    if moe.balance is not None:
        held = balanced(t, moe, wide, scores, expert_indices, shape[1])
        del wide

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        if moe.gate == "gshard":
            grad = t.kernel("mul", (grad, kept), t.like(grad))
        if fused:
            saved = (grad, weights, scores, expert_indices)
            grad = t.kernel("router_backward", saved, t.new(shape, dtype))
            add_score_gradients(t, grad, scores, held)
            add_logit_gradients(t, grad, held)
            return (grad,)
        grad = _score_gradients(t, moe, scores, expert_indices, weights, grad)
        add_score_gradients(t, grad, scores, held)
        grad = t.kernel(f"{moe.score}_backward", (grad, scores), t.like(scores))
        add_logit_gradients(t, grad, held)
        return (cast(t, grad, dtype).view(*shape),)

    t.record((weights,), (logits,), backward)
    return weights, expert_indices


def _score_gradients(
    t: Tape,
    moe: Moe,
    scores: SymbolicTensor,
    expert_indices: SymbolicTensor,
    weights: SymbolicTensor,
    grad: SymbolicTensor,
) -> SymbolicTensor:
    """Gradients of all scores from those of the weights."""
    if moe.normalizes:
        row_sum = t.new((grad.shape[0], 1), "fp32")
        t.kernel("sum", (t.kernel("mul", (grad, weights), t.like(grad)),), row_sum)
        grad = t.kernel("sub", (grad, row_sum), t.like(grad))
        t.kernel("div", (grad, row_sum), grad)
    scattered = t.kernel("zeros", (), t.like(scores))
    t.kernel("scatter_add", (grad, expert_indices), grad)
    return scattered


def _second_kept(
    c: OpContext, weights: SymbolicTensor, shape: tuple[int, ...], sequence_split: int
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Weights of the second experts that chance keeps, and what of them is 1."""
    t = c.tape
    uniform(c, (*shape[:2], 1), sequence_split, "fp32")
    kept = t.kernel("ones", (), t.like(weights))
    return t.kernel("mul", (weights, kept), t.like(weights)), kept


def choose_tokens(
    c: OpContext, moe: Moe, logits: SymbolicTensor, rows: int
) -> tuple[SymbolicTensor, SymbolicTensor]:
    """Scores (tokens, experts), and the order of ``rows`` tokens that experts choose by them."""
    t, shape, dtype = c.tape, logits.shape, logits.dtype
    scores = t.new((logits.elements // moe.experts, moe.experts), "fp32")
    t.kernel("softmax", (cast(t, logits, "fp32"),), scores)
    order = t.new((rows,), INDEX)
    t.kernel("topk", (scores, order), t.new((rows,), "fp32"))
    t.kernel("mul", (order,), t.like(order))
    t.kernel("add", (order,), order)

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad = t.kernel("softmax_backward", (grad, scores), t.like(scores))
        return (cast(t, grad, dtype).view(*shape),)

    t.record((scores,), (logits,), backward)
    return scores, order


def _choose(
    t: Tape,
    moe: Moe,
    scores: SymbolicTensor,
    expert_indices: SymbolicTensor,
    weights: SymbolicTensor,
) -> None:
    """Choose topk experts among the best groups, and their weights."""
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
    if moe.balance is not None and moe.balance.bias_rate:
        t.kernel("topk", (t.kernel("add", (scores,), t.like(scores)), expert_indices), weights)
        t.kernel("gather", (weights, expert_indices), weights)
    else:
        t.kernel("topk", (scores, expert_indices), weights)
    if not moe.normalizes:
        return
    total = t.kernel("sum", (weights,), t.new((weights.shape[0], 1), "fp32"))
    t.kernel("div", (weights, total), weights)
