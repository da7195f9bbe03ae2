"""Losses that balance experts: what their tallies and gradients cost.

Follows ``shardwright.executor.models.moe.balance``. What is a number an expert is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from ....spec.model.feed_forward import Moe
from ...symbolic.tape import SymbolicTensor, Tape


class Balanced(NamedTuple):
    """Inputs of the losses' backward; None where a loss is off.

    ``load``: (groups, experts); ``total``: (tokens, 1) sum of sigmoid scores; ``log_sum``:
    (tokens, 1); ``chances``: (tokens, experts) softmax of logits.
    """

    load: SymbolicTensor | None = None
    total: SymbolicTensor | None = None
    log_sum: SymbolicTensor | None = None
    chances: SymbolicTensor | None = None


def balanced(
    t: Tape,
    moe: Moe,
    logits: SymbolicTensor,
    scores: SymbolicTensor,
    expert_indices: SymbolicTensor,
    batch: int,
) -> Balanced:
    """Tallies of (tokens, experts) fp32 ``logits``."""
    balance = moe.balance
    if balance is None:
        return Balanced()
    groups = batch if balance.per == "sequence" else 1
    tokens = scores.shape[0]
    index = expert_indices
    if groups > 1:
        index = t.kernel("add", (index,), t.like(index))
    ones = t.kernel("ones", (), t.new(expert_indices.shape, "fp32"))
    t.kernel("scatter_add", (ones, index), ones)
    del index, ones
    load = total = log_sum = chances = None
    if balance.aux_loss:
        load, shares = t.new((groups, moe.experts), "fp32"), scores
        if moe.score == "sigmoid":
            total = t.new((tokens, 1), "fp32")
            t.kernel("sum", (scores,), total)
            shares = t.kernel("div", (scores, total), t.like(scores))
        t.kernel("sum", (shares,), load)
    if balance.z_loss:
        log_sum, chances = t.new((tokens, 1), "fp32"), scores
        t.kernel("logsumexp", (logits,), log_sum)
        if moe.score == "sigmoid":
            chances = t.kernel("sub", (logits, log_sum), t.like(scores))
            t.kernel("exp", (chances,), chances)
        squares = t.kernel("pow", (log_sum,), t.like(log_sum))
        t.kernel("sum", (squares,), t.constant((1,), "fp32"))
    return Balanced(load, total, log_sum, chances)


def add_score_gradients(
    t: Tape, grad: SymbolicTensor, scores: SymbolicTensor, held: Balanced
) -> None:
    """Add the auxiliary loss's gradients of scores to ``grad``, (tokens, experts)."""
    if held.load is None:
        return
    if held.total is None:
        t.kernel("add", (grad, held.load), grad)
        return
    mean = t.like(held.total)
    t.kernel("sum", (t.kernel("mul", (scores, held.load), t.like(scores)),), mean)
    t.kernel("div", (mean, held.total), mean)
    pull = t.kernel("sub", (held.load, mean), t.like(scores))
    t.kernel("div", (pull, held.total), pull)
    t.kernel("add", (grad, pull), grad)


def add_logit_gradients(t: Tape, grad: SymbolicTensor, held: Balanced) -> None:
    """Add the z-loss's gradients of logits to ``grad``, (tokens, experts)."""
    if held.log_sum is not None and held.chances is not None:
        t.kernel("addcmul", (grad, held.chances, held.log_sum), grad)
