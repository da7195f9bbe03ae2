"""In which order the rows of a mixture of experts lie: those of one expert side by side.

Assignment number t · topk + j is token t's j-th choice. Sorting is stable, so rows of one expert
keep the order of their tokens, and the order depends on the choice alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...spec.errors import InputError


class ExpertOrder(NamedTuple):
    """Rows in the order of experts, on the device of the choice, made without waiting for it.

    Attributes:
        order: (rows,) int64, the assignment in each row; -1: none, the row is zeros.
        slots: (tokens, topk) int64, the row of each assignment; -1: dropped, it adds zeros.
        counts: (experts,) int64, assignments that each expert gets.
    """

    order: Tensor
    slots: Tensor
    counts: Tensor


def expert_order(chosen: Tensor, experts: int, capacity: int | None = None) -> ExpertOrder:
    """Order assignments by expert.

    Args:
        chosen: (tokens, topk) integers, an expert each, or -1 for a dropped assignment.
        experts: how many there are.
        capacity: rows of each expert: later assignments are dropped, missing rows stay empty, so
            there are experts · capacity rows. None: as many rows as assignments, the kept ones
            first, whose number is ``counts.sum()``.

    Raises:
        InputError: ``chosen`` has other than two axes; experts or capacity below 1.
    """
    if chosen.ndim != 2:
        raise InputError("chosen", f"shape {tuple(chosen.shape)}", "(tokens, topk)")
    for name, value in (("experts", experts), ("capacity", capacity)):
        if value is not None and value < 1:
            raise InputError(name, value, "1 or more", 1)
    flat = chosen.flatten().long()
    sorted_experts, order = torch.where(flat < 0, experts, flat).sort(stable=True)
    starts = torch.searchsorted(sorted_experts, torch.arange(experts + 1, device=flat.device))
    rows = torch.arange(flat.numel(), device=flat.device)
    kept, size = sorted_experts < experts, flat.numel()
    counts = starts.diff()
    if capacity is not None:
        within = rows - starts[sorted_experts]
        rows, size = sorted_experts * capacity + within, experts * capacity
        kept, counts = kept & (within < capacity), counts.clamp(max=capacity)
    slots = torch.empty_like(flat).scatter_(0, order, torch.where(kept, rows, -1))
    # What is dropped goes to a spare last row.
    filled = torch.full((size + 1,), -1, device=flat.device)
    filled[torch.where(kept, rows, size)] = torch.where(kept, order, -1)
    return ExpertOrder(filled[:-1], slots.view_as(chosen), counts)


__all__ = ["ExpertOrder", "expert_order"]
