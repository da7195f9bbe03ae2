"""Grouped matrix product, one matrix a group of rows, for experts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.moe.grouped_matmul import grouped_matmul

GROUPS = 8


def _ours(
    kernels: Dispatcher, x: Tensor, weight: Tensor, ends: Tensor, bounds: list[int]
) -> Tensor:
    return grouped_matmul(kernels, x, weight, ends)


def _eager(x: Tensor, weight: Tensor, ends: Tensor, bounds: list[int]) -> Tensor:
    """Eager gets the group ends on the host, so no wait."""
    parts = [x[start:end] @ weight[i] for i, (start, end) in enumerate(pairwise(bounds))]
    return torch.cat(parts)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Rows of unequal groups; back there are two such products."""
    rows, hidden = sizes.tokens, sizes.hidden
    moved = (2 * rows * hidden + GROUPS * hidden**2) * sizes.dtype.itemsize

    def make(maker: Make) -> tuple[Any, ...]:
        bounds = [n * (n + 1) * rows // (GROUPS * (GROUPS + 1)) for n in range(GROUPS + 1)]
        ends = torch.tensor(bounds[1:], dtype=torch.int32, device=maker.device)
        weight = maker.normal(GROUPS, hidden, hidden).mul_(hidden**-0.5)
        return maker.normal(rows, hidden), weight, ends, bounds

    common = {
        "family": "grouped_matmul",
        "case": f"{rows} rows in {GROUPS} groups, {hidden} x {hidden}",
        "make": make,
        "ours": _ours,
        "eager": _eager,
        "bound": "matmul",
        "compiled": False,  # a loop of slices has nothing to fuse
    }
    product = 2 * rows * hidden**2
    yield Entry(mode="forward", work=Work(moved, product), **common)
    yield Entry(mode="backward", work=Work(2 * moved, 2 * product), **common)
