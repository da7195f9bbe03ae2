"""Row order of a mixture of experts, contiguous by expert.

Assignment t · topk + j is token t's j-th choice. Sorting is stable, so an expert's rows keep the
order of their tokens, and the order depends on the choice alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...spec.errors import InputError


class ExpertOrder(NamedTuple):
    """Row order by expert, computed on the device without a host sync.

    Attributes:
        order: (rows,) int64, the assignment in each row; -1: none, the row is zeros.
        slots: (tokens, topk) int64, the row of each assignment; -1: dropped, it adds zeros.
        counts: (experts,) int64, assignments per expert.
    """

    order: Tensor
    slots: Tensor
    counts: Tensor


def expert_order(chosen: Tensor, experts: int, capacity: int | None = None) -> ExpertOrder:
    """Order assignments by expert.

    Args:
        chosen: (tokens, topk) integers, an expert each, or -1 for a dropped assignment.
        experts: how many there are.
        capacity: rows per expert: later assignments are dropped, missing rows stay empty, for
            experts · capacity rows in all. None: as many rows as assignments, the ``counts.sum()``
            kept ones first.

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
