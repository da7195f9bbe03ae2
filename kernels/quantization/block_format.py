"""Formats of quantized blocks: bits, block, transform, output, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...spec.errors import InputError
from ..hadamard import GROUP

LEVELS = {4: 7, 8: 127}
"""Largest level of each width: the same on both sides of zero, so 15 of 16 levels in 4 bits, as in
SDP4Bit (2024), and 255 of 256 in 8."""
MAX_BLOCK = 32768
"""Elements that one program of the fused kernels holds."""
MIN_SCALE = torch.finfo(torch.float32).tiny
"""Smaller scales are written as zero: not every device computes with subnormal numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFormat:
    """Symmetric levels of ``bits`` bits with one float32 scale per block.

    Attributes:
        bits: 4 (two to a byte, uint8, the first in the low half) or 8 (int8).
        block: elements that share a scale, even; blocks run along the last axis and never across
            its end. A short last block is zero-filled, and the zeros are stored too.
        hadamard: transform groups of 32 elements before and, divided by 32, after. To stay in the
            transformed domain, decode with a format that says no.

    Raises:
        InputError: other bits; an odd, too small or too large block; one that is no multiple of 32
            with ``hadamard``.
    """

    bits: int
    block: int
    hadamard: bool = False

    def __post_init__(self) -> None:
        if self.bits not in LEVELS:
            nearest = min(LEVELS, key=lambda level: abs(level - self.bits))
            raise InputError("bits", self.bits, "4 or 8", nearest)
        step = GROUP if self.hadamard else 2
        if self.block % step or not step <= self.block <= MAX_BLOCK:
            nearest = min(max(round(self.block / step) * step, step), MAX_BLOCK)
            why = " (with the transform)" if self.hadamard else ""
            allowed = f"a multiple of {step}{why}, at most {MAX_BLOCK}"
            raise InputError("block", self.block, allowed, nearest)

    @property
    def levels(self) -> int:
        """The largest level."""
        return LEVELS[self.bits]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the packed levels."""
        return torch.uint8 if self.bits == 4 else torch.int8

    def blocks(self, width: int) -> int:
        """Blocks, and so scales, of a row of ``width`` elements."""
        return -(-width // self.block)

    def packed_bytes(self, width: int) -> int:
        """Bytes of a row's ``width`` levels, filling included."""
        return self.blocks(width) * self.block * self.bits // 8

    @property
    def counters_of_block(self) -> int:
        """Random counters per block.

        Element j takes word j % 4 of number j // 4.
        """
        return -(-self.block // 4)

    def counters(self, x: Tensor) -> int:
        """Random counters that stochastic rounding of ``x`` uses, over all blocks."""
        return x.shape[:-1].numel() * self.blocks(x.shape[-1]) * self.counters_of_block


class Quantized(NamedTuple):
    """Quantized form of (…, width) numbers.

    Attributes:
        packed: (…, bytes) levels, int8 or, two to a byte, uint8.
        scales: (…, blocks) float32, a block's highest magnitude over its highest level. Zero where
            a block is all zero or below 2⁻¹²⁶; NaN, so that the whole block decodes to NaN, where
            any of it is NaN or infinite (or becomes so in the transform).
    """

    packed: Tensor
    scales: Tensor


def check_fits(quantised: Quantized, form: BlockFormat, shape: tuple[int, ...]) -> None:
    """Check that the parts fit numbers of this shape.

    Raises:
        InputError: other shapes or types.
    """
    rows, width = shape[:-1], shape[-1]
    packed, scales = quantised
    for name, part, dtype, size in (
        ("packed", packed, form.dtype, form.packed_bytes(width)),
        ("scales", scales, torch.float32, form.blocks(width)),
    ):
        if part.dtype != dtype or tuple(part.shape) != (*rows, size):
            description = f"{part.dtype} of shape {tuple(part.shape)}"
            raise InputError(name, description, f"{dtype} of shape {(*rows, size)}")


__all__ = ["BlockFormat", "Quantized", "check_fits"]
