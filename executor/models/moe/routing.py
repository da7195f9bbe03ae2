"""Routing: each token's experts and weights, and the resulting rows.

Runs what ``shardwright.costmodel.ops.routing`` prices in its plain form, in the same order. Scores
are float32; a token's weights add up to 1. A row is one assignment of a token; rows are sorted by
expert, then by token.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from ....spec.model.feed_forward import Moe, group_votes


def best_experts(scores: Tensor, moe: Moe) -> tuple[Tensor, Tensor]:
    """Each token's highest scores and their experts, (tokens, topk), from (tokens, experts)."""
    if moe.groups_per_token < moe.groups:
        scores = _of_best_groups(scores, moe)
    best = torch.topk(scores, moe.topk, dim=-1)
    return best.values, best.indices


def _of_best_groups(scores: Tensor, moe: Moe) -> Tensor:
    """Scores with zeros outside each token's best groups of experts.

    A group scores as its best expert (DeepSeek-V2, arXiv:2405.04434, section 2.2.2), or with
    sigmoid scores as the sum of its two best (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
    """
    grouped = scores.unflatten(-1, (moe.groups, -1))  # type: ignore[no-untyped-call]
    best = grouped.topk(group_votes(moe), dim=-1).values
    best = best.sum(-1) if best.shape[-1] > 1 else best.squeeze(-1)
    groups = best.topk(moe.groups_per_token, dim=-1).indices
    outside = torch.ones(best.shape, dtype=torch.bool, device=best.device)
    outside.scatter_(1, groups, False)
    out: Tensor = grouped.masked_fill(outside.unsqueeze(-1), 0.0).flatten(1)
    return out


class _Route(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, moe: Moe) -> tuple[Tensor, Tensor]:
        wide = logits.flatten(0, 1).float()
        scores = wide.softmax(-1) if moe.score == "softmax" else wide.sigmoid()
        weights, expert_ids = best_experts(scores, moe)
        total = weights.sum(-1, keepdim=True)
        weights.div_(total)
        ctx.save_for_backward(scores, expert_ids, weights, total)
        ctx.score, ctx.shape, ctx.dtype = moe.score, logits.shape, logits.dtype
        ctx.mark_non_differentiable(expert_ids)
        ctx.set_materialize_grads(False)
        return weights, expert_ids

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        scores, expert_ids, weights, total = ctx.saved_tensors
        weighted_sum = (grads[0] * weights).sum(-1, keepdim=True)
        grad = (grads[0] - weighted_sum).div_(total)
        grad_scores = torch.zeros(scores.shape, dtype=scores.dtype, device=scores.device)
        grad_scores.scatter_add_(1, expert_ids, grad)
        if ctx.score == "softmax":
            grad_scores = torch._softmax_backward_data(grad_scores, scores, -1, scores.dtype)
        else:
            grad_scores = torch.ops.aten.sigmoid_backward(grad_scores, scores)
        return grad_scores.to(ctx.dtype).view(ctx.shape), None


def route(logits: Tensor, moe: Moe) -> tuple[Tensor, Tensor]:
    """Weights and ids of each token's experts, from (seq, batch, experts) ``logits``.

    Returns:
        (tokens, topk) float32 and int64.
    """
    routed: tuple[Tensor, Tensor] = _Route.apply(logits, moe)  # type: ignore[no-untyped-call]
    return routed


class RoutedRows(NamedTuple):
    """Origin of each row.

    ``order``: (rows,) int64 assignments, token · topk + choice. ``token``: its token. ``offsets``:
    (experts,) int32 end of each expert's rows.
    """

    order: Tensor
    token: Tensor
    offsets: Tensor


@lru_cache(maxsize=64)
def _row_numbers(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device)


def clear_row_numbers() -> None:
    """Free the cached row numbers, remade on demand."""
    _row_numbers.cache_clear()


def sorted_rows(expert_ids: Tensor, experts: int) -> RoutedRows:
    """Rows of (tokens, topk) choices among ``experts``; no token is dropped."""
    assignments = expert_ids.flatten().sort(stable=True)
    numbers = _row_numbers(experts, expert_ids.device)
    offsets = torch.searchsorted(assignments.values, numbers, right=True, out_int32=True)
    return RoutedRows(assignments.indices, assignments.indices // expert_ids.shape[1], offsets)


class _Permute(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor) -> Tensor:
        ctx.save_for_backward(token)
        ctx.shape = x.shape
        return x.flatten(0, 1).index_select(0, token)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (token,) = ctx.saved_tensors
        return _summed(grads[0], token, ctx.shape), None


def _summed(rows: Tensor, token: Tensor, shape: torch.Size) -> Tensor:
    out = torch.zeros(shape[0] * shape[1], shape[2], dtype=rows.dtype, device=rows.device)
    return out.index_add_(0, token, rows).view(shape)


def permute(x: Tensor, rows: RoutedRows) -> Tensor:
    """(rows, width): the token of each row, from (seq, batch, width)."""
    out: Tensor = _Permute.apply(x, rows.token)  # type: ignore[no-untyped-call]
    return out


class _PermuteWeights(Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        ctx.shape = weights.shape
        return weights.flatten().index_select(0, order).unsqueeze(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        grad = grads[0].flatten()
        return torch.empty_like(grad).scatter_(0, order, grad).view(ctx.shape), None


class _Combine(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weights: Tensor, token: Tensor, shape: torch.Size
    ) -> Tensor:
        ctx.save_for_backward(rows, weights, token)
        return _summed(rows * weights, token, shape).to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows, weights, token = ctx.saved_tensors
        grad_by_row = grads[0].flatten(0, 1).to(weights.dtype).index_select(0, token)
        grad_rows = torch.mul(grad_by_row, weights, out=torch.empty_like(rows))
        grad_weights = grad_by_row.mul_(rows).sum(1, keepdim=True)
        return grad_rows, grad_weights, None, None


def combine(outputs: Tensor, weights: Tensor, rows: RoutedRows, shape: torch.Size) -> Tensor:
    """Weighted float32 sum of each token's rows, of shape (seq, batch, width).

    ``outputs`` of the experts are (rows, width), ``weights`` (tokens, topk).
    """
    row_weights = _PermuteWeights.apply(weights, rows.order)  # type: ignore[no-untyped-call]
    out: Tensor = _Combine.apply(outputs, row_weights, rows.token, shape)  # type: ignore[no-untyped-call]
    return out


__all__ = [
    "RoutedRows",
    "best_experts",
    "clear_row_numbers",
    "combine",
    "permute",
    "route",
    "sorted_rows",
]
