"""The signalled product in Triton: programs that stay, and wait at the shards' signals."""

# Triton's language has the looks of Python and types of its own.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# ruff: noqa: ANN001, ANN202, N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...spec.errors import InputError
from ..fused import power_of_two

_TILE = {"M": 128, "N": 128, "K": 64, "warps": 8}
_INTERPRETED = 4
"""Programs on cores, where they run one after another."""


@triton.jit
def _signalled(
    x, weight, out, signals, rows, n, k, shards, rank,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Take every tile that is this program's turn, each after its shard's signal."""
    tiles_down = tl.cdiv(rows, M)
    tiles_across = tl.cdiv(n, N)
    tiles = shards * tiles_down * tiles_across
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        shard = (tile // (tiles_down * tiles_across) + rank) % shards
        inside = tile % (tiles_down * tiles_across)
        row = inside % tiles_down * M + tl.arange(0, M)
        column = inside // tiles_down * N + tl.arange(0, N)
        ready = tl.atomic_add(signals + shard, 0, sem="acquire", scope="sys")
        while ready == 0:
            ready = tl.atomic_add(signals + shard, 0, sem="acquire", scope="sys")
        start = (shard * rows).to(tl.int64) + row
        total = tl.zeros((M, N), tl.float32)
        for first in range(0, k, K):
            middle = first + tl.arange(0, K)
            left = (row < rows)[:, None] & (middle < k)[None, :]
            right = (middle < k)[:, None] & (column < n)[None, :]
            a = tl.load(x + (start * k)[:, None] + middle[None, :], mask=left, other=0)
            b = tl.load(weight + (middle.to(tl.int64) * n)[:, None] + column[None, :],
                        mask=right, other=0)  # fmt: skip
            if WIDE:
                a = a.to(tl.float32)
                b = b.to(tl.float32)
            total = tl.dot(a, b, total, input_precision=PRECISION)
        present = (row < rows)[:, None] & (column < n)[None, :]
        to = out + (start * n)[:, None] + column[None, :]
        tl.store(to, total.to(out.dtype.element_ty), mask=present)


def programs_at_once(device: torch.device, tiles: int, reserved: int) -> int:
    """Programs that run at once beside ``reserved`` multiprocessors, at most one a tile.

    Raises:
        InputError: none is left for the product.
    """
    if device.type == "cpu":
        return min(tiles, _INTERPRETED)
    have = torch.cuda.get_device_properties(device).multi_processor_count
    if reserved >= have:
        raise InputError("reserved", reserved, f"fewer than the device's {have} multiprocessors")
    return min(tiles, have - reserved)


def product(x: Tensor, weight: Tensor, signals: Tensor, rank: int, reserved: int) -> Tensor:
    """Product (m, n) of dense (m, k) and (k, n), in the type of ``x``."""
    (m, k), n, shards = x.shape, weight.shape[1], signals.numel()
    out = x.new_empty((m, n))
    if not m or not n:
        return out
    rows = m // shards
    high, across = (_fitting(size, _TILE[name]) for size, name in ((rows, "M"), (n, "N")))
    tiles = shards * triton.cdiv(rows, high) * triton.cdiv(n, across)
    grid = (programs_at_once(x.device, tiles, reserved),)
    wide = x.dtype == torch.bfloat16 and x.device.type == "cpu"  # the interpreter has no such dot
    with torch.cuda.device_of(x):
        _signalled[grid](
            x, weight, out, signals, rows, n, k, shards, rank,
            M=high, N=across, K=_fitting(k, _TILE["K"]), PRECISION="ieee", WIDE=wide,
            num_warps=_TILE["warps"],
        )  # fmt: skip
    return out


def _fitting(size: int, most: int) -> int:
    return max(16, min(most, power_of_two(size)))


__all__ = ["product", "programs_at_once"]
