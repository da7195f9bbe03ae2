"""Losses that balance experts: tallied forward, their gradients added backward.

Runs what ``shardwright.costmodel.ops.moe.balance`` prices, in the same order. A group is the tokens
that this rank routes at once; a loss is its mean over groups, by their tokens, summed over layers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....spec.model.feed_forward import Balance, Moe
from .router import AUXILIARY, Z_LOSS, RouterState


class Balanced(NamedTuple):
    """Inputs of the losses' backward; None where a loss is off.

    ``load``: (groups, experts) assignments to each expert for a token of its group; ``total``:
    (tokens, 1) sum of sigmoid scores; ``log_sum``: (tokens, 1) log-sum-exp of logits.
    ``chances``: (tokens, experts) their softmax.
    """

    load: Tensor | None = None
    total: Tensor | None = None
    log_sum: Tensor | None = None
    chances: Tensor | None = None


def loads(expert_ids: Tensor, experts: int, columns: int = 1) -> Tensor:
    """(columns, experts) float32 assignments of (tokens, topk) ids.

    ``columns``: samples that alternate along the tokens; 1 for all together.
    """
    index = expert_ids.flatten()
    if columns > 1:
        firsts = torch.arange(columns, device=index.device) * experts
        index = (expert_ids.view(-1, columns, expert_ids.shape[1]) + firsts.view(-1, 1)).flatten()
    ones = torch.ones(index.shape, device=index.device)
    counted = torch.zeros(columns * experts, device=index.device).scatter_add_(0, index, ones)
    return counted.view(columns, experts)


def balanced(
    logits: Tensor, scores: Tensor, expert_ids: Tensor, moe: Moe, router: RouterState, batch: int
) -> Balanced:
    """Tally the losses of (tokens, experts) float32 ``logits``."""
    balance = moe.balance
    if balance is None:
        return Balanced()
    by_sequence = balance.per == "sequence"
    counted = loads(expert_ids, moe.experts, batch if by_sequence else 1)
    if router.clock.counts:
        router.load += counted.sum(0)
    load = total = log_sum = chances = None
    if balance.aux_loss:
        load = counted.div_(scores.shape[0] // counted.shape[0])
        shares = scores
        if moe.score == "sigmoid":
            total = scores.sum(-1, keepdim=True)
            shares = scores / total
        score = shares.view(-1, counted.shape[0], moe.experts).sum(0)
        if router.clock.counts:
            router.losses[AUXILIARY] += (score * load).sum() * (moe.experts / router.all_tokens)
    if balance.z_loss:
        log_sum = logits.logsumexp(-1, keepdim=True)
        chances = scores if moe.score == "softmax" else (logits - log_sum).exp_()
        if router.clock.counts:
            router.losses[Z_LOSS] += log_sum.square().sum() / router.all_tokens
    return Balanced(load, total, log_sum, chances)


def add_score_gradients(
    grad: Tensor, scores: Tensor, kept: Balanced, balance: Balance, scale: float
) -> None:
    """Add the auxiliary loss's gradients of scores to ``grad``, (tokens, experts)."""
    if kept.load is None:
        return
    groups, experts = kept.load.shape
    pull = kept.load * (balance.aux_loss * experts * scale)
    grad = grad.view(-1, groups, experts)
    if kept.total is None:
        grad.add_(pull)
        return
    total = kept.total.view(-1, groups, 1)
    mean = (scores.view(-1, groups, experts) * pull).sum(-1, keepdim=True).div_(total)
    grad.add_((pull - mean).div_(total))


def add_logit_gradients(grad: Tensor, kept: Balanced, balance: Balance, scale: float) -> None:
    """Add the z-loss's gradients of logits to ``grad``, (tokens, experts)."""
    if kept.log_sum is None or kept.chances is None:
        return
    grad.addcmul_(kept.chances, kept.log_sum, value=2 * balance.z_loss * scale)


def save(ctx: Any, kept: Balanced) -> list[Tensor]:
    """Tensors to save, their places kept in ``ctx``."""
    ctx.places = [place for place, tensor in enumerate(kept) if tensor is not None]
    return [tensor for tensor in kept if tensor is not None]


def restored(ctx: Any, tensors: tuple[Tensor, ...]) -> Balanced:
    """The fields that :func:`save` saved."""
    found: list[Tensor | None] = [None] * len(Balanced._fields)
    for place, tensor in zip(ctx.places, tensors, strict=True):
        found[place] = tensor
    return Balanced(*found)


__all__ = [
    "Balanced",
    "add_logit_gradients",
    "add_score_gradients",
    "balanced",
    "loads",
    "restored",
    "save",
]
