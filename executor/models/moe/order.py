"""Order of rows by expert, and the copies that make it.

Runs what ``shardwright.costmodel.ops.moe.order`` prices in its plain form. A row is one assignment
of a token; rows are sorted by expert, then by token. With a capacity every expert has as many rows:
later assignments are dropped, missing rows filled up with a token of weight 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from ....spec.model.feed_forward import Moe


class RoutedRows(NamedTuple):
    """Origin of each row.

    ``order``: (rows,) int64 assignments, token · topk + choice. ``token``: its token. ``offsets``:
    (experts,) int32 end of each expert's rows. ``whole``: every assignment has one row.
    ``filled``: (rows,) float32, 0 where no assignment is; None if every row has one.
    """

    order: Tensor
    token: Tensor
    offsets: Tensor
    whole: bool = True
    filled: Tensor | None = None


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


def limited_rows(expert_ids: Tensor, weights: Tensor, moe: Moe, capacity: int) -> RoutedRows:
    """Rows of (tokens, topk) choices, ``capacity`` of each expert.

    By position, first choices come before second ones, each by token (GShard, arXiv:2006.16668,
    section 2.2); by probability, the highest ``weights`` first (V-MoE, arXiv:2106.05974, section
    4.1). An assignment that GShard's chance dropped, of weight 0, takes no row.
    """
    tokens, topk = expert_ids.shape
    choices, experts = expert_ids.t().flatten(), moe.experts
    if moe.gate == "gshard":
        choices = choices.masked_fill(weights.detach().t().flatten() == 0, experts)
    first = None
    if moe.capacity_order == "probability":
        first = weights.detach().t().flatten().sort(descending=True, stable=True).indices
        choices = choices[first]
    taken = choices.sort(stable=True)
    starts = torch.searchsorted(taken.values, _row_numbers(experts + 1, choices.device))
    within = _row_numbers(choices.shape[0], choices.device) - starts[taken.values]
    beyond = experts * capacity
    slot = (taken.values * capacity).add_(within).masked_fill_(within >= capacity, beyond)
    if moe.gate == "gshard":
        slot.clamp_(max=beyond)
    source = taken.indices if first is None else first[taken.indices]
    source = (source % tokens).mul_(topk).add_(source // tokens)
    order = torch.zeros(beyond + 1, dtype=source.dtype, device=source.device)
    order = order.scatter_(0, slot, source)[:-1]
    filled = torch.zeros(beyond + 1, device=source.device).scatter_(0, slot, 1.0)[:-1]
    return RoutedRows(order, order // topk, even_offsets(moe, capacity, order), False, filled)


def chosen_rows(scores: Tensor, moe: Moe, capacity: int) -> RoutedRows:
    """The ``capacity`` tokens of the highest (tokens, experts) ``scores`` for each expert."""
    token = scores.detach().t().topk(capacity, dim=-1).indices
    order = token * moe.experts + _row_numbers(moe.experts, scores.device).unsqueeze(1)
    return RoutedRows(order.flatten(), token.flatten(), even_offsets(moe, capacity, token), False)


def even_offsets(moe: Moe, rows: int, like: Tensor) -> Tensor:
    """(experts,) int32 end of each expert's ``rows`` rows."""
    return torch.arange(1, moe.experts + 1, dtype=torch.int32, device=like.device) * rows


class _Permute(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor) -> Tensor:
        ctx.save_for_backward(token)
        ctx.shape = x.shape
        return x.flatten(0, 1).index_select(0, token)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (token,) = ctx.saved_tensors
        return sum_by_token(grads[0], token, ctx.shape), None


def sum_by_token(rows: Tensor, token: Tensor, shape: torch.Size) -> Tensor:
    """Sum rows of the same token: ``shape`` (seq, batch, width)."""
    out = torch.zeros(shape[0] * shape[1], shape[2], dtype=rows.dtype, device=rows.device)
    return out.index_add_(0, token, rows).view(shape)


def permute(x: Tensor, rows: RoutedRows) -> Tensor:
    """(rows, width): the token of each row, from (seq, batch, width)."""
    out: Tensor = _Permute.apply(x, rows.token)  # type: ignore[no-untyped-call]
    return out


class _PermuteWeights(Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, rows: RoutedRows) -> Tensor:
        filled = rows.filled
        ctx.save_for_backward(rows.order, *(() if filled is None else (filled,)))
        ctx.shape, ctx.whole = weights.shape, rows.whole
        out = weights.flatten().index_select(0, rows.order)
        return (out if filled is None else out.mul_(filled)).unsqueeze(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        order, *filled = ctx.saved_tensors
        grad = grads[0].flatten()
        if ctx.whole:
            return torch.empty_like(grad).scatter_(0, order, grad).view(ctx.shape), None
        for mask in filled:
            grad = grad * mask
        out = torch.zeros(ctx.shape, dtype=grad.dtype, device=grad.device)
        out.view(-1).scatter_add_(0, order, grad)
        return out, None


def permute_weights(weights: Tensor, rows: RoutedRows) -> Tensor:
    """(rows, 1): the weight of each row, from (tokens, topk)."""
    out: Tensor = _PermuteWeights.apply(weights, rows)  # type: ignore[no-untyped-call]
    return out


__all__ = [
    "RoutedRows",
    "chosen_rows",
    "clear_row_numbers",
    "even_offsets",
    "limited_rows",
    "permute",
    "permute_weights",
    "sorted_rows",
    "sum_by_token",
]
