"""Block quantization in Triton: an encoding and a decoding kernel.

A program holds whole blocks, one per tile row, so a scale is computed where it is used. Numbers are
float32 from load to store.
"""

# Triton's language has the looks of Python and types of its own.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..rounding import Philox
from .block_format import MIN_SCALE, BlockFormat, Quantized

_TILE = 4096
"""Elements of a program that holds several small blocks."""
_NEVER = Philox(0)


@triton.jit
def _sums_and_differences(x, ELEMENTS: tl.constexpr, APART: tl.constexpr):
    pairs = tl.trans(tl.reshape(x, (ELEMENTS // (2 * APART), 2, APART)), (0, 2, 1))
    first, second = tl.split(pairs)
    return tl.reshape(tl.trans(tl.join(first + second, first - second), (0, 2, 1)), (ELEMENTS,))


@triton.jit
def _hadamard(x, ROWS: tl.constexpr, PADDED: tl.constexpr):
    """The 32-point transform along the rows of a tile."""
    x = tl.reshape(x, (ROWS * PADDED,))
    x = _sums_and_differences(x, ROWS * PADDED, 1)
    x = _sums_and_differences(x, ROWS * PADDED, 2)
    x = _sums_and_differences(x, ROWS * PADDED, 4)
    x = _sums_and_differences(x, ROWS * PADDED, 8)
    x = _sums_and_differences(x, ROWS * PADDED, 16)
    return tl.reshape(x, (ROWS, PADDED))


@triton.jit
def _uniforms(seed, first, ROWS: tl.constexpr, PADDED: tl.constexpr):
    """Numbers in [0, 1) for a tile, from each row's ``first`` counter."""
    counters = first[:, None] + tl.arange(0, PADDED // 4)[None, :]
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    bits = (words.to(tl.uint32, bitcast=True) >> 8).to(tl.int32)
    return bits.to(tl.float32) * 5.9604644775390625e-08  # 2⁻²⁴


@triton.jit
def _whole(x):
    """Round to nearest even, for magnitudes below 2²²."""
    return (x + 12582912.0) - 12582912.0  # 1.5·2²³, from where on float32 has no fractions


@triton.jit(do_not_specialize=["seed", "offset"])
def _encode(
    x, packed, scales, width, blocks, row_blocks, seed, offset,
    BLOCK: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, BITS: tl.constexpr,
    LEVELS: tl.constexpr, SMALLEST: tl.constexpr, HADAMARD: tl.constexpr, CHANCE: tl.constexpr,
):  # fmt: skip
    """Encode ROWS blocks: transform, highest magnitude, rounding, packing."""
    block = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = tl.arange(0, PADDED)
    column = (block % row_blocks * BLOCK)[:, None] + inside[None, :]
    present = (block < blocks)[:, None] & (inside < BLOCK)[None, :] & (column < width)
    at = (block // row_blocks * width)[:, None] + column
    value = tl.load(x + at, mask=present, other=0).to(tl.float32)
    if HADAMARD:
        value = _hadamard(value, ROWS, PADDED)
    infinite = float("inf")
    size = tl.abs(value)
    highest = tl.max(tl.where(size < infinite, size, infinite), axis=1)  # NaN counts as infinite
    scale = tl.div_rn(highest, tl.full((ROWS,), LEVELS, tl.float32))
    scale = tl.where(scale >= SMALLEST, scale, 0.0)
    scale = tl.where(highest < infinite, scale, float("nan"))
    tl.store(scales + block, scale, mask=block < blocks)
    usable = scale > 0
    divisor = tl.broadcast_to(tl.where(usable, scale, 1.0)[:, None], (ROWS, PADDED))
    level = tl.where(usable[:, None], tl.div_rn(value, divisor), 0.0)
    if CHANCE:
        uniform = _uniforms(seed, offset + block * ((BLOCK + 3) // 4), ROWS, PADDED)
        low = tl.floor(level)
        level = low + (uniform < level - low).to(tl.float32)
    else:
        level = _whole(level)
    level = tl.minimum(tl.maximum(level, -LEVELS), LEVELS).to(tl.int32)
    if BITS == 4:
        low_half, high_half = tl.split(tl.reshape(level, (ROWS, PADDED // 2, 2)))
        byte = ((low_half & 15) | ((high_half & 15) << 4)).to(tl.uint8)
        pair = tl.arange(0, PADDED // 2)
        stored = (block < blocks)[:, None] & (pair < BLOCK // 2)[None, :]
        tl.store(packed + (block * (BLOCK // 2))[:, None] + pair[None, :], byte, mask=stored)
    else:
        stored = (block < blocks)[:, None] & (inside < BLOCK)[None, :]
        to = packed + (block * BLOCK)[:, None] + inside[None, :]
        tl.store(to, level.to(tl.int8), mask=stored)


@triton.jit
def _decode(
    packed, scales, out, width, blocks, row_blocks, peers, peer_bytes,
    BLOCK: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, BITS: tl.constexpr,
    HADAMARD: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Decode ROWS blocks: scale, sum over peers, inverse transform, store or add."""
    block = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = tl.arange(0, PADDED)
    written = (block < blocks)[:, None] & (inside < BLOCK)[None, :]
    element = (block * BLOCK)[:, None] + inside[None, :]
    total = tl.zeros((ROWS, PADDED), tl.float32)
    for _ in range(peers):
        scale = tl.load(scales + block, mask=block < blocks, other=0)
        if BITS == 4:
            byte = tl.load(packed + element // 2, mask=written, other=0).to(tl.int32)
            half = (byte >> (inside % 2 * 4)[None, :]) & 15
            level = (half ^ 8) - 8
        else:
            level = tl.load(packed + element, mask=written, other=0).to(tl.int32)
        total += level.to(tl.float32) * scale[:, None]
        packed += peer_bytes
        scales += blocks
    if HADAMARD:
        total = _hadamard(total, ROWS, PADDED) * 0.03125
    column = (block % row_blocks * BLOCK)[:, None] + inside[None, :]
    to = out + (block // row_blocks * width)[:, None] + column
    present = written & (column < width)
    if ADD:
        total += tl.load(to, mask=present, other=0).to(tl.float32)
    tl.store(to, total.to(out.dtype.element_ty), mask=present)


def _geometry(form: BlockFormat, blocks: int) -> tuple[tuple[int], dict[str, int]]:
    padded = max(4, triton.next_power_of_2(form.block))
    rows = max(1, min(_TILE // padded, triton.next_power_of_2(blocks)))
    sizes = {"BLOCK": form.block, "PADDED": padded, "ROWS": rows, "BITS": form.bits}
    # Products and sums are rounded one by one, as eager ones are: ranks of any kind agree.
    options = {"num_warps": 4 if padded <= _TILE else 8, "enable_fp_fusion": False}
    return (triton.cdiv(blocks, rows),), {**sizes, **options}


def encode(
    x: Tensor, packed: Tensor, scales: Tensor, form: BlockFormat, philox: Philox | None
) -> None:
    """Write levels and scales of contiguous (…, width) ``x``."""
    blocks, width = scales.numel(), x.shape[-1]
    if not blocks:
        return
    grid, sizes = _geometry(form, blocks)
    seed, offset = philox or _NEVER
    with torch.cuda.device_of(x):
        _encode[grid](
            x, packed, scales, width, blocks, scales.shape[-1], seed, offset,
            LEVELS=form.levels, SMALLEST=MIN_SCALE, HADAMARD=form.hadamard,
            CHANCE=philox is not None, **sizes,
        )  # fmt: skip


def decode(quantised: Quantized, out: Tensor, form: BlockFormat, peers: int, add: bool) -> None:
    """Write, or add, the sum over ``peers`` to ``out``.

    ``peers``' first axis is summed; ``out`` is contiguous (…, width).
    """
    packed, scales = quantised
    blocks, width = scales.numel() // peers, out.shape[-1]
    if not blocks:
        return
    grid, sizes = _geometry(form, blocks)
    with torch.cuda.device_of(out):
        _decode[grid](
            packed, scales, out, width, blocks, scales.shape[-1], peers,
            packed.numel() // peers, HADAMARD=form.hadamard, ADD=add, **sizes,
        )  # fmt: skip


__all__ = ["decode", "encode"]
