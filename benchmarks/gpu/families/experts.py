"""Products of experts, each on its own rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.dispatch import Dispatcher
from shardwright.kernels.grouped_matmul import grouped_matmul

EXPERTS = 8


def _ours(kernels: Dispatcher, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return grouped_matmul(kernels, x, weight, ends)


def _eager(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    rows = x.shape[0] // weight.shape[0]
    return torch.cat([part @ w for part, w in zip(x.split(rows), weight, strict=True)])


def entries(sizes: Sizes) -> Iterator[Entry]:
    """As many rows for each of eight experts; two products back."""
    rows, hidden = sizes.tokens, sizes.hidden

    def make(given: Make) -> tuple[Tensor, Tensor, Tensor]:
        part = rows // EXPERTS
        ends = torch.arange(part, rows + 1, part, device=given.device, dtype=torch.int32)
        weight = given.normal(EXPERTS, hidden, hidden) / hidden**0.5
        return given.normal(rows, hidden), weight, ends

    size, product = sizes.dtype.itemsize, 2 * rows * hidden * hidden
    moved = (2 * rows * hidden + EXPERTS * hidden * hidden) * size
    common = {
        "family": "grouped_matmul",
        "case": f"{rows} rows of {EXPERTS} experts, {hidden} x {hidden}",
        "make": make,
        "ours": _ours,
        "eager": _eager,
        "inputs": 2,
        "bound": "matmul",
    }
    yield Entry(mode="forward", work=Work(moved, product), **common)
    yield Entry(mode="backward", work=Work(2 * moved, 2 * product), **common)
