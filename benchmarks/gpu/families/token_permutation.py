"""Permutation of tokens to rows of experts, and the weighted return."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.moe.expert_order import ExpertOrder, expert_order
from shardwright.kernels.moe.token_permutation import permute, unpermute

EXPERTS, TOPK = 8, 2


def _permute_eager(x: Tensor, order: ExpertOrder) -> Tensor:
    return x[order.order // TOPK]


def _unpermute_ours(
    kernels: Dispatcher, rows: Tensor, weights: Tensor, order: ExpertOrder
) -> Tensor:
    return unpermute(kernels, rows, order, weights)


def _unpermute_eager(rows: Tensor, weights: Tensor, order: ExpertOrder) -> Tensor:
    return (rows[order.slots] * weights.unsqueeze(-1)).sum(1)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Every token goes to two experts; no row is empty."""
    tokens, width = sizes.activations[0]
    full = tokens * width * sizes.dtype.itemsize

    def order(make: Make) -> ExpertOrder:
        # The second choice differs from the first.
        first, step = make.whole(EXPERTS, tokens, 1), make.whole(EXPERTS - 1, tokens, 1) + 1
        chosen = torch.cat((first, first + step), dim=1) % EXPERTS
        return expert_order(chosen, EXPERTS)

    def tokens_and_order(make: Make) -> tuple[Tensor, ExpertOrder]:
        return make.normal(tokens, width), order(make)

    def rows_and_order(make: Make) -> tuple[Tensor, Tensor, ExpertOrder]:
        return make.normal(TOPK * tokens, width), make.normal(tokens, TOPK), order(make)

    case = f"{tokens} x {width}, {TOPK} of {EXPERTS} experts"
    there = {"family": "permute", "case": case, "make": tokens_and_order}
    there |= {"ours": permute, "eager": _permute_eager}
    back = {"family": "unpermute", "case": case, "make": rows_and_order}
    back |= {"ours": _unpermute_ours, "eager": _unpermute_eager}
    yield Entry(mode="forward", work=Work((1 + TOPK) * full), **there)
    yield Entry(mode="backward", work=Work((1 + TOPK) * full), **there)
    yield Entry(mode="forward", work=Work((1 + TOPK) * full), **back)
    yield Entry(mode="backward", work=Work((1 + 2 * TOPK) * full), **back)
