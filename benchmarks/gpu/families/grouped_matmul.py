"""The product of groups of rows with a matrix each, as experts need it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.grouped_matmul import grouped_matmul

GROUPS = 8


def _ours(kernels: Dispatcher, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return grouped_matmul(kernels, x, weight, ends)


def _eager(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    bounds = [0, *ends.tolist()]
    parts = [x[start:end] @ weight[i] for i, (start, end) in enumerate(pairwise(bounds))]
    return torch.cat(parts)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Rows of unequal groups; back there are two such products."""
    rows, hidden = sizes.tokens, sizes.hidden
    moved = (2 * rows * hidden + GROUPS * hidden**2) * sizes.dtype.itemsize

    def make(given: Make) -> tuple[Tensor, ...]:
        shares = torch.arange(1, GROUPS + 1, device=given.device)
        ends = (shares * (shares + 1) * rows).div(GROUPS * (GROUPS + 1), rounding_mode="floor")
        weight = given.normal(GROUPS, hidden, hidden).mul_(hidden**-0.5)
        return given.normal(rows, hidden), weight, ends.to(torch.int32)

    common = {
        "family": "grouped_matmul",
        "case": f"{rows} rows in {GROUPS} groups, {hidden} x {hidden}",
        "make": make,
        "ours": _ours,
        "eager": _eager,
        "bound": "matmul",
        "compiled": False,  # it reads the groups' ends on the host
    }
    product = 2 * rows * hidden**2
    yield Entry(mode="forward", work=Work(moved, product), **common)
    yield Entry(mode="backward", work=Work(2 * moved, 2 * product), **common)
