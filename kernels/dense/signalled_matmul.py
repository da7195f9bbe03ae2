"""A matrix product whose rows arrive while it runs, shard by shard.

Tensor parallelism gathers the rows of an activation before a product. Here the product begins at
once: a tile waits for the signal of its rows' shard, and tiles begin with the rank's own shard and
go round, in the order in which the others arrive (Chang et al., Flux, arXiv:2406.06858, sections
3.2 and 3.3). Whoever copies a shard in sets its signal afterwards, to 1.

Waiting programs hold their multiprocessors, so there are no more of them than run at once, less
``reserved`` ones for kernels that copy; each takes its tiles in the same order, so none waits for
rows behind those that another needs.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...spec.errors import InputError
from ..dispatch import Dispatcher, Family, Variant
from ..fused import triton_unsupported


def shards_in_order(count: int, rank: int) -> Iterator[int]:
    """Shards from the rank's own onwards, round to the one before it."""
    return ((rank + step) % count for step in range(count))


def _eager(x: Tensor, weight: Tensor, signals: Tensor, rank: int, reserved: int) -> Tensor:
    out = x.new_empty((x.shape[0], weight.shape[1]))
    rows = x.shape[0] // signals.numel()
    for shard in shards_in_order(signals.numel(), rank):
        while not int(signals[shard]):  # set by whoever copies the rows
            pass
        span = slice(shard * rows, (shard + 1) * rows)
        torch.mm(x[span], weight, out=out[span])
    return out


def _fused(x: Tensor, weight: Tensor, signals: Tensor, rank: int, reserved: int) -> Tensor:
    from . import signalled_matmul_triton

    return signalled_matmul_triton.product(x, weight, signals, rank, reserved)


SIGNALLED_MATMUL = Family(
    "signalled_matmul",
    (Variant("triton", _fused, triton_unsupported), Variant("eager", _eager, fused=False)),
)
"""Decided by the gathered rows (m, k)."""


def signalled_matmul(
    kernels: Dispatcher,
    x: Tensor,
    weight: Tensor,
    signals: Tensor,
    rank: int = 0,
    reserved: int = 0,
) -> Tensor:
    """Product (m, n) of gathered rows, begun before all of them are there.

    Args:
        kernels: of the run.
        x: (m, k), dense; equal shards of its rows arrive in any order.
        weight: (k, n), dense.
        signals: (shards,) of int32 on their device; 0 until a shard's rows are in ``x``.
        rank: whose own shard is there first.
        reserved: multiprocessors that are left to kernels which copy; 0 where copy engines do.

    Raises:
        InputError: shapes that do not fit, shards of unequal rows, or too few multiprocessors.
    """
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[0]:
        raise InputError("weight", f"shape {tuple(weight.shape)}", f"({x.shape[-1]}, n)")
    if signals.dtype != torch.int32 or signals.dim() != 1 or not signals.numel():
        raise InputError("signals", f"{signals.dtype}", "int32, one for each shard")
    if x.shape[0] % signals.numel():
        raise InputError("x", f"{x.shape[0]} rows", f"a multiple of {signals.numel()} shards")
    if not 0 <= rank < signals.numel():
        raise InputError("rank", rank, f"0 to {signals.numel() - 1}")
    product: Tensor = kernels.pick(SIGNALLED_MATMUL, x)(
        x.contiguous(), weight.contiguous(), signals, rank, reserved
    )
    return product


def signalled_matmul_reference(x: Tensor, weight: Tensor) -> Tensor:
    """Float64 reference: the product of rows that are all there."""
    return x.double() @ weight.double()


__all__ = [
    "SIGNALLED_MATMUL",
    "shards_in_order",
    "signalled_matmul",
    "signalled_matmul_reference",
]
