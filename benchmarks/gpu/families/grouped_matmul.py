"""Grouped matrix product, one matrix a group of rows, for experts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.moe.grouped_matmul import grouped_matmul
from shardwright.spec.workload.expert_load import power_shares

GROUPS = 8
LOADS = {"": None, ", even load": 0.0, ", load of power 1.0": 1.0}
"""Exponents of the shares of groups; None: they grow by equal steps."""


def _ours(
    kernels: Dispatcher, x: Tensor, weight: Tensor, ends: Tensor, bounds: list[int]
) -> Tensor:
    return grouped_matmul(kernels, x, weight, ends)


def _eager(x: Tensor, weight: Tensor, ends: Tensor, bounds: list[int]) -> Tensor:
    """Eager gets the group ends on the host, so no wait."""
    parts = [x[start:end] @ weight[i] for i, (start, end) in enumerate(pairwise(bounds))]
    return torch.cat(parts)


def group_bounds(rows: int, exponent: float | None) -> list[int]:
    """Bounds of groups of ``rows``: shares k^-exponent, or k of an arithmetic row."""
    if exponent is None:
        return [n * (n + 1) * rows // (GROUPS * (GROUPS + 1)) for n in range(GROUPS + 1)]
    ends = accumulate(power_shares(GROUPS, exponent))
    return [0, *(round(end * rows) for end in ends)]


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Rows of unequal and of equal groups; back there are two such products."""
    rows, hidden = sizes.tokens, sizes.hidden
    moved = (2 * rows * hidden + GROUPS * hidden**2) * sizes.dtype.itemsize
    product = 2 * rows * hidden**2

    def make(bounds: list[int], maker: Make) -> tuple[Any, ...]:
        ends = torch.tensor(bounds[1:], dtype=torch.int32, device=maker.device)
        weight = maker.normal(GROUPS, hidden, hidden).mul_(hidden**-0.5)
        return maker.normal(rows, hidden), weight, ends, bounds

    for load, exponent in LOADS.items():
        common: dict[str, Any] = {
            "family": "grouped_matmul",
            "case": f"{rows} rows in {GROUPS} groups, {hidden} x {hidden}{load}",
            "make": partial(make, group_bounds(rows, exponent)),
            "ours": _ours,
            "eager": _eager,
            "bound": "matmul",
            "compiled": False,  # a loop of slices has nothing to fuse
        }
        yield Entry(mode="forward", work=Work(moved, product), **common)
        yield Entry(mode="backward", work=Work(2 * moved, 2 * product), **common)
