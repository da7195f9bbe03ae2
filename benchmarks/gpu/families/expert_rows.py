"""Experts' rows as runs order and combine them, against the traffic that this takes at least."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.executor.models.moe.combine import combine
from shardwright.executor.models.moe.order import RoutedRows, limited_rows, sorted_rows
from shardwright.kernels.dispatch import Dispatcher
from shardwright.spec.model.feed_forward import Moe, expert_capacity

MOE = Moe(experts=8, topk=2, ffn=1)
LIMITED = Moe(experts=8, topk=2, ffn=1, capacity_factor=1.25)
NUMBER, WEIGHT, END = 8, 4, 4
"""Bytes of a row's number, of its weight, and of an expert's end."""


def _choices(tokens: int, make: Make) -> Tensor:
    """Two experts a token; the second differs from the first."""
    first = make.whole(MOE.experts, tokens, 1)
    step = make.whole(MOE.experts - 1, tokens, 1) + 1
    return torch.cat((first, first + step), dim=1) % MOE.experts


def _sorted(kernels: Dispatcher, chosen: Tensor) -> tuple[Tensor, ...]:
    rows = sorted_rows(chosen, MOE.experts)
    return rows.order, rows.token, rows.offsets


def _sorted_eager(chosen: Tensor) -> tuple[Tensor, ...]:
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    ends = torch.bincount(flat, minlength=MOE.experts).cumsum(0)
    return order, order // MOE.topk, ends.int()


def _limited(capacity: int, kernels: Dispatcher, chosen: Tensor) -> tuple[Tensor, ...]:
    weights = torch.empty(chosen.shape, device=chosen.device)  # which positions do not ask
    rows = limited_rows(chosen, weights, LIMITED, capacity)
    assert rows.filled is not None
    return rows.order, rows.filled


def _limited_eager(capacity: int, chosen: Tensor) -> tuple[Tensor, ...]:
    """Places by sums of ones, first choices before second ones."""
    tokens, topk = chosen.shape
    choices = chosen.t().flatten()
    ones = torch.nn.functional.one_hot(choices, LIMITED.experts)
    place = (ones.cumsum(0) - 1).gather(1, choices.unsqueeze(1)).squeeze(1)
    numbers = torch.arange(choices.shape[0], device=chosen.device)
    source = numbers % tokens * topk + numbers // tokens
    kept = place < capacity
    slot = choices[kept] * capacity + place[kept]
    order = torch.zeros(LIMITED.experts * capacity, dtype=torch.int64, device=chosen.device)
    filled = torch.zeros(order.shape[0], device=chosen.device)
    return order.index_put((slot,), source[kept]), filled.index_fill(0, slot, 1.0)


def _combine(
    kernels: Dispatcher, outputs: Tensor, weights: Tensor, rows: RoutedRows, shape: torch.Size
) -> Tensor:
    return combine(outputs, weights, rows, shape)


def _combine_eager(outputs: Tensor, weights: Tensor, rows: RoutedRows, shape: torch.Size) -> Tensor:
    weighted = outputs.float() * weights.flatten()[rows.order].unsqueeze(1)
    out = torch.zeros(shape[0] * shape[1], shape[2], device=outputs.device)
    return out.index_add(0, rows.token, weighted).view(shape).to(outputs.dtype)


def _orders(tokens: int) -> Iterator[Entry]:
    """Choices come in; numbers, tokens and ends go out."""
    count, capacity = tokens * MOE.topk, expert_capacity(LIMITED, tokens)
    slots = LIMITED.experts * capacity
    common: dict[str, Any] = {
        "family": "expert_order",
        "mode": "forward",
        "make": lambda make: (_choices(tokens, make),),
        "judged": False,
        "error_limit": 0.0,  # numbers of rows
        "compiled": False,  # sorts and scatters, which nothing fuses
    }
    case = f"{tokens} tokens, {MOE.topk} of {MOE.experts} experts"
    yield Entry(
        case=case,
        ours=_sorted,
        eager=_sorted_eager,
        work=Work(3 * count * NUMBER + MOE.experts * END),
        **common,
    )
    yield Entry(
        case=f"{case}, capacity {LIMITED.capacity_factor}",
        ours=partial(_limited, capacity),
        eager=partial(_limited_eager, capacity),
        work=Work(count * NUMBER + slots * (NUMBER + WEIGHT)),
        **common,
    )


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Order by sorting, and the weighted sum of a token's rows both ways."""
    tokens, width = sizes.activations[0]
    yield from _orders(tokens)
    full, row_weights = tokens * width * sizes.dtype.itemsize, tokens * MOE.topk * WEIGHT

    def make(maker: Make) -> tuple[Any, ...]:
        rows = sorted_rows(_choices(tokens, maker), MOE.experts)
        weights = maker.normal(tokens, MOE.topk, dtype=torch.float32)
        shape = torch.Size((tokens, 1, width))
        return maker.normal(tokens * MOE.topk, width), weights, rows, shape

    common: dict[str, Any] = {
        "family": "expert_combine",
        "case": f"{tokens} x {width}, {MOE.topk} of {MOE.experts} experts",
        "make": make,
        "ours": _combine,
        "eager": _combine_eager,
        "judged": False,  # unpermute is the kernel that is
    }
    yield Entry(mode="forward", work=Work((1 + MOE.topk) * full + row_weights), **common)
    yield Entry(mode="backward", work=Work((1 + 2 * MOE.topk) * full + 2 * row_weights), **common)
