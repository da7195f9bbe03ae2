"""Gates: each token's experts and their weights.

Runs what ``shardwright.costmodel.ops.moe.gate`` prices in its plain form, in the same order. Scores
are float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from ....spec.model.feed_forward import Moe, group_votes
from .balance import Balanced, add_logit_gradients, add_score_gradients, balanced, restored, save
from .cosine import cosine_logits
from .router import RouterState, jittered, required

if TYPE_CHECKING:
    from ..block import Block


def router_logits(block: Block, moe: Moe, x: Tensor) -> Tensor:
    """Logits (seq, batch, experts) of ``x`` (seq, batch, hidden); X-MoE's are cosines."""
    balance = moe.balance
    if balance is not None and balance.jitter and balance.jitters == "router":
        x = jittered(x, balance, required(block.router_state, moe))
    if moe.gate_width is None:
        return block.replicated(x, "router")
    temperature: Tensor = block.router_temperature  # type: ignore[assignment]
    (weight,) = block.weights("router")
    return cosine_logits(block.replicated(x, "router_down"), weight, temperature)


def best_experts(scores: Tensor, moe: Moe) -> tuple[Tensor, Tensor]:
    """Each token's highest scores and their experts, (tokens, topk), from (tokens, experts)."""
    if moe.groups_per_token < moe.groups:
        scores = _of_best_groups(scores, moe)
    best = torch.topk(scores, moe.topk, dim=-1)
    return best.values, best.indices


def _of_best_groups(scores: Tensor, moe: Moe) -> Tensor:
    """Scores, lowest outside each token's best groups of experts.

    A group scores as its best expert (DeepSeek-V2, arXiv:2405.04434, section 2.2.2), or with
    sigmoid scores as the sum of its two best (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
    """
    grouped = scores.unflatten(-1, (moe.groups, -1))  # type: ignore[no-untyped-call]
    best = grouped.topk(group_votes(moe), dim=-1).values
    best = best.sum(-1) if best.shape[-1] > 1 else best.squeeze(-1)
    groups = best.topk(moe.groups_per_token, dim=-1).indices
    outside = torch.ones(best.shape, dtype=torch.bool, device=best.device)
    outside.scatter_(1, groups, False)
    out: Tensor = grouped.masked_fill(outside.unsqueeze(-1), float("-inf")).flatten(1)
    return out


def _choose(scores: Tensor, moe: Moe, router: RouterState | None) -> tuple[Tensor, Tensor]:
    """Weights before they are normalized, and ids; a bias has its say in the ids alone."""
    if router is None or router.bias is None:
        return best_experts(scores, moe)
    _, expert_ids = best_experts(scores + router.bias, moe)
    return scores.gather(1, expert_ids), expert_ids


def _second_kept(weights: Tensor, router: RouterState) -> Tensor:
    """(tokens, 2) ones, and zeros where chance drops the second expert.

    GShard, arXiv:2006.16668, algorithm 1: kept where twice its weight is above a uniform number.
    """
    drawn = router.uniform("second", 1, weights, 0.0, 1.0).flatten().view(-1, 1)
    kept = torch.ones_like(weights)
    kept[:, 1:] = weights[:, 1:] * 2 > drawn
    return kept


class _Route(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, moe: Moe, router: RouterState | None
    ) -> tuple[Tensor, Tensor]:
        wide = logits.flatten(0, 1).float()
        scores = wide.softmax(-1) if moe.score == "softmax" else wide.sigmoid()
        weights, expert_ids = _choose(scores, moe, router)
        own: list[Tensor] = []
        if moe.normalizes:
            total = weights.sum(-1, keepdim=True)
            weights.div_(total)
            own = [weights, total]
        if moe.gate == "gshard":
            kept = _second_kept(weights, required(router, moe))
            own.append(kept)
            weights = weights * kept
        held = Balanced()
        if moe.balance is not None:
            state = required(router, moe)
            held = balanced(wide, scores, expert_ids, moe, state, logits.shape[1])
            ctx.scale = state.token_scale
        ctx.own = len(own)
        ctx.save_for_backward(scores, expert_ids, *own, *save(ctx, held))
        ctx.moe, ctx.shape, ctx.dtype = moe, logits.shape, logits.dtype
        ctx.mark_non_differentiable(expert_ids)
        ctx.set_materialize_grads(False)
        return weights, expert_ids

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        moe: Moe = ctx.moe
        scores, expert_ids, *rest = ctx.saved_tensors
        own, held = rest[: ctx.own], restored(ctx, tuple(rest[ctx.own :]))
        grad = grads[0]
        if moe.gate == "gshard":
            grad = grad * own[2]
        if moe.normalizes:
            weights, total = own[:2]
            weighted_sum = (grad * weights).sum(-1, keepdim=True)
            grad = (grad - weighted_sum).div_(total)
        grad_scores = torch.zeros(scores.shape, dtype=scores.dtype, device=scores.device)
        grad_scores.scatter_add_(1, expert_ids, grad)
        if moe.balance is not None:
            add_score_gradients(grad_scores, scores, held, moe.balance, ctx.scale)
        if moe.score == "softmax":
            grad_scores = torch._softmax_backward_data(grad_scores, scores, -1, scores.dtype)
        else:
            grad_scores = torch.ops.aten.sigmoid_backward(grad_scores, scores)
        if moe.balance is not None:
            add_logit_gradients(grad_scores, held, moe.balance, ctx.scale)
        return grad_scores.to(ctx.dtype).view(ctx.shape), None, None


class _Scores(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        scores = logits.flatten(0, 1).float().softmax(-1)
        ctx.save_for_backward(scores)
        ctx.shape, ctx.dtype = logits.shape, logits.dtype
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (scores,) = ctx.saved_tensors
        grad: Tensor = torch._softmax_backward_data(grads[0], scores, -1, scores.dtype)
        return grad.to(ctx.dtype).view(ctx.shape)


def scores_of(logits: Tensor) -> Tensor:
    """(tokens, experts) float32 softmax of (seq, batch, experts) ``logits``."""
    scores: Tensor = _Scores.apply(logits)  # type: ignore[no-untyped-call]
    return scores


def route(logits: Tensor, moe: Moe, router: RouterState | None = None) -> tuple[Tensor, Tensor]:
    """Weights and ids of each token's experts, from (seq, batch, experts) ``logits``.

    Returns:
        (tokens, topk) float32 and int64.
    """
    routed: tuple[Tensor, Tensor] = _Route.apply(logits, moe, router)  # type: ignore[no-untyped-call]
    return routed


__all__ = ["best_experts", "route", "router_logits", "scores_of"]
