"""Block quantization in eager torch, and its float64 reference."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..hadamard import GROUP, hadamard, hadamard_reference
from ..rounding import Philox, random_words, stochastic_round, uniforms
from .block_format import MIN_SCALE, BlockFormat, Quantized


def _blocks_of(x: Tensor, form: BlockFormat) -> Tensor:
    blocks = form.blocks(x.shape[-1])
    filled = F.pad(x, (0, blocks * form.block - x.shape[-1]))
    return filled.reshape(*x.shape[:-1], blocks, form.block)


def block_uniforms(x: Tensor, form: BlockFormat, philox: Philox) -> Tensor:
    """Per-element thresholds in [0, 1), (…, blocks, block) float32."""
    blocks, counters_each = form.blocks(x.shape[-1]), form.counters_of_block
    counters = torch.arange(x.shape[:-1].numel() * blocks * counters_each, device=x.device)
    words = random_words(philox.seed, counters + philox.offset)
    drawn = uniforms(words).view(*x.shape[:-1], blocks, 4 * counters_each)
    return drawn[..., : form.block]


def _pack(levels: Tensor, form: BlockFormat) -> Tensor:
    levels = levels.to(torch.int8).flatten(-2)
    if form.bits == 8:
        return levels
    halves = levels.view(torch.uint8) & 15
    return halves[..., ::2] | (halves[..., 1::2] << 4)


def unpack(packed: Tensor, form: BlockFormat) -> Tensor:
    """Levels as int8, (…, blocks, block)."""
    if form.bits == 4:
        halves = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
        packed = (halves ^ 8).view(torch.int8) - 8
    return packed.reshape(*packed.shape[:-1], packed.shape[-1] // form.block, form.block)


def encode(x: Tensor, form: BlockFormat, philox: Philox | None) -> Quantized:
    """Levels and scales of (…, width) ``x``."""
    values = _blocks_of(x.float(), form)
    if form.hadamard:
        values = hadamard(values)
    highest = values.abs().amax(-1)
    scales = highest / form.levels
    scales = torch.where(scales >= MIN_SCALE, scales, 0)
    scales = torch.where(highest < torch.inf, scales, torch.nan)
    usable = (scales > 0).unsqueeze(-1)
    levels = torch.where(usable, values / scales.unsqueeze(-1), 0)
    if philox is None:
        levels = levels.round()
    else:
        levels = stochastic_round(levels, block_uniforms(x, form, philox))
    return Quantized(_pack(levels.clamp(-form.levels, form.levels), form), scales)


def decode_sum(peers: Quantized, width: int, form: BlockFormat, dtype: torch.dtype) -> Tensor:
    """Sum over the first axis, in order, in float32."""
    total = torch.zeros((*peers.scales.shape[1:], form.block), device=peers.scales.device)
    for packed, scales in zip(*peers, strict=True):
        total += unpack(packed, form).float() * scales.unsqueeze(-1)
    if form.hadamard:
        total = hadamard(total) / GROUP
    return total.flatten(-2)[..., :width].to(dtype)


def add_decoded(weight: Tensor, quantised: Quantized, form: BlockFormat) -> None:
    """Add to (…, width) ``weight`` in float32, rounded once."""
    peers = Quantized(*(part[None] for part in quantised))
    difference = decode_sum(peers, weight.shape[-1], form, torch.float32)
    weight.copy_(weight.float() + difference)


def encode_reference(
    x: Tensor, form: BlockFormat, uniform: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Float64 reference: levels before packing, (…, blocks, block), and scales.

    Args:
        x: (…, width), finite.
        form: of the blocks.
        uniform: in [0, 1), shaped like the levels: stochastic rounding; None: to nearest.
    """
    values = _blocks_of(x.double(), form)
    if form.hadamard:
        values = hadamard_reference(values)
    scales = values.abs().amax(-1) / form.levels
    levels = torch.where(scales.unsqueeze(-1) > 0, values / scales.unsqueeze(-1), 0)
    if uniform is None:
        return levels.round(), scales
    return levels.floor() + (uniform < levels - levels.floor()), scales


def decode_reference(levels: Tensor, scales: Tensor, width: int, form: BlockFormat) -> Tensor:
    """Float64 reference: (…, width) numbers from levels and scales."""
    values = levels.double() * scales.double().unsqueeze(-1)
    if form.hadamard:
        values = hadamard_reference(values) / GROUP
    return values.flatten(-2)[..., :width]


__all__ = [
    "add_decoded",
    "block_uniforms",
    "decode_reference",
    "decode_sum",
    "encode",
    "encode_reference",
    "unpack",
]
