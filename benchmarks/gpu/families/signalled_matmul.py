"""A product whose rows are all there, and one whose shards a copy stream brings meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.dense.signalled_matmul import shards_in_order, signalled_matmul
from shardwright.kernels.dispatch import Dispatcher

SHARDS = 8


def _signalled(kernels: Dispatcher, x: Tensor, weight: Tensor, signals: Tensor) -> Tensor:
    return signalled_matmul(kernels, x, weight, signals)


def _mm(x: Tensor, weight: Tensor, signals: Tensor) -> Tensor:
    return torch.mm(x, weight)


def _beside(kernels: Dispatcher, x: Tensor, weight: Tensor, arrived: Tensor) -> Tensor:
    """The first shard is there; a stream of its own copies the others in and signals."""
    signals = torch.zeros(SHARDS, dtype=torch.int32, device=x.device)
    signals[0] = 1
    shards, into = x.chunk(SHARDS), arrived.chunk(SHARDS)
    into[0].copy_(shards[0])
    if not x.is_cuda:
        _bring(shards, into, signals)
        return signalled_matmul(kernels, arrived, weight, signals)
    stream = torch.cuda.Stream(x.device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(stream):
        _bring(shards, into, signals)
    out = signalled_matmul(kernels, arrived, weight, signals)
    torch.cuda.current_stream(x.device).wait_stream(stream)
    return out


def _bring(shards: tuple[Tensor, ...], into: tuple[Tensor, ...], signals: Tensor) -> None:
    one = torch.ones((), dtype=torch.int32, device=signals.device)
    for shard in list(shards_in_order(SHARDS, 0))[1:]:
        into[shard].copy_(shards[shard])
        signals[shard].copy_(one)  # copies run in order, so the signal is behind its rows


def _in_turn(x: Tensor, weight: Tensor, arrived: Tensor) -> Tensor:
    arrived.copy_(x)
    return torch.mm(arrived, weight)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Forward only: backward products are others, with their own collectives."""
    rows, width = sizes.tokens, sizes.hidden
    item = sizes.dtype.itemsize
    moved, product = (2 * rows * width + width**2) * item, 2 * rows * width**2
    case = f"{rows} rows, {width} x {width}"

    def there(make: Make) -> tuple[Any, ...]:
        weight = make.normal(width, width).mul_(width**-0.5)
        signals = torch.ones(SHARDS, dtype=torch.int32, device=make.device)
        return make.normal(rows, width), weight, signals

    def coming(make: Make) -> tuple[Any, ...]:
        x, weight, _ = there(make)
        return x, weight, torch.empty_like(x)

    common = {"family": "signalled_matmul", "mode": "forward", "bound": "matmul"}
    common |= {"compiled": False, "judged": False}
    yield Entry(case=f"{case}, all signals set", make=there, ours=_signalled, eager=_mm,
                work=Work(moved, product), **common)  # fmt: skip
    yield Entry(case=f"{case}, {SHARDS} shards copied in beside", make=coming, ours=_beside,
                eager=_in_turn, work=Work(moved + 2 * rows * width * item, product),
                **common)  # fmt: skip
