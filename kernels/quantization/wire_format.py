"""Levels and scales of quantized rows as one message."""

from __future__ import annotations

import torch
from torch import Tensor

from .block_format import BlockFormat, Quantized


def message_bytes(form: BlockFormat, width: int) -> int:
    """Bytes of a row of ``width`` elements: its levels, then its scales."""
    return form.packed_bytes(width) + form.blocks(width) * torch.float32.itemsize


def join(quantized: Quantized) -> Tensor:
    """Rows of levels and scales as (rows, bytes) uint8."""
    packed, scales = quantized
    return torch.cat((packed.view(torch.uint8), scales.view(torch.uint8)), dim=-1)


def part(messages: Tensor, form: BlockFormat, width: int) -> Quantized:
    """Levels and scales of (rows, bytes) messages."""
    levels = form.packed_bytes(width)
    packed, scales = (
        side.clone(memory_format=torch.contiguous_format)
        for side in messages.tensor_split((levels,), dim=-1)
    )
    return Quantized(packed.view(form.dtype), scales.view(torch.float32))


__all__ = ["join", "message_bytes", "part"]
