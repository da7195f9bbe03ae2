"""Moves of token ranges: one kernel each, or one copy per range."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ..element_views import summing_type
from ..fused import operation
from .ranges import TokenRanges


def _nothing(*tensors: Tensor) -> None:
    return None


@operation(
    "gather_token_ranges(Tensor source, Tensor ends, Tensor shifts, Tensor(a!) out) -> ()",
    _nothing,
)
def _gather_operation(source: Tensor, ends: Tensor, shifts: Tensor, out: Tensor) -> None:
    from . import copy_triton as kernel

    kernel.copy(source, out, ends, shifts, scatter=False)


@operation(
    "scatter_token_ranges(Tensor rows, Tensor ends, Tensor shifts, Tensor(a!) out) -> ()",
    _nothing,
)
def _scatter_operation(rows: Tensor, ends: Tensor, shifts: Tensor, out: Tensor) -> None:
    from . import copy_triton as kernel

    kernel.copy(rows, out, ends, shifts, scatter=True)


@operation(
    "sum_token_ranges(Tensor rows, Tensor starts, Tensor ends, Tensor shifts, Tensor(a!) out)"
    " -> ()",
    _nothing,
)
def _sum_operation(rows: Tensor, starts: Tensor, ends: Tensor, shifts: Tensor, out: Tensor) -> None:
    from . import copy_triton as kernel

    kernel.add_up(rows, out, starts, ends, shifts)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], x.shape[1:].numel())


def _written(x: Tensor, write: Callable[[Tensor], object]) -> None:
    flat = _flat(x)
    write(flat)
    if flat.untyped_storage().data_ptr() != x.untyped_storage().data_ptr():
        x.copy_(flat.view(x.shape))
    elif not x.is_inference():
        increment_version(x)


def _gather_fused(source: Tensor, ranges: TokenRanges, out: Tensor) -> None:
    _written(out, lambda to: _gather_operation(_flat(source), ranges.ends, ranges.shifts, to))


def _scatter_fused(rows: Tensor, ranges: TokenRanges, out: Tensor) -> None:
    _written(out, lambda to: _scatter_operation(_flat(rows), ranges.ends, ranges.shifts, to))


def _sum_fused(rows: Tensor, ranges: TokenRanges, out: Tensor) -> None:
    _sum_operation(_flat(rows), ranges.starts, ranges.ends, ranges.shifts, _flat(out))


def _gather_each(source: Tensor, ranges: TokenRanges, out: Tensor) -> None:
    row = 0
    for start, length in ranges.pieces:
        out.narrow(0, row, length).copy_(source.narrow(0, start, length), non_blocking=True)
        row += length


def _scatter_each(rows: Tensor, ranges: TokenRanges, out: Tensor) -> None:
    row = 0
    for start, length in ranges.pieces:
        out.narrow(0, start, length).copy_(rows.narrow(0, row, length), non_blocking=True)
        row += length


def _sum_each(rows: Tensor, ranges: TokenRanges, out: Tensor) -> None:
    total, row = torch.zeros_like(out, dtype=summing_type(out.dtype)), 0
    for start, length in ranges.pieces:
        total.narrow(0, start, length).add_(rows.narrow(0, row, length))
        row += length
    out.copy_(total)


class RangeMoves(NamedTuple):
    """One implementation; each function writes its last argument.

    ``gather`` and ``scatter`` copy tokens into rows and back; ``add_up`` writes each token the sum
    of its rows, range by range.
    """

    gather: Callable[[Tensor, TokenRanges, Tensor], None]
    scatter: Callable[[Tensor, TokenRanges, Tensor], None]
    add_up: Callable[[Tensor, TokenRanges, Tensor], None]


FUSED = RangeMoves(_gather_fused, _scatter_fused, _sum_fused)
EAGER = RangeMoves(_gather_each, _scatter_each, _sum_each)

__all__ = ["EAGER", "FUSED", "RangeMoves"]
