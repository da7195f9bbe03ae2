"""The words that Triton's own Philox gives, as they come out."""

# ruff: noqa: N803  # a kernel writes its constants large

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["seed", "first"])
def _words(out, seed, first, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    counters = first + place.to(tl.int64)
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    tl.store(out + 4 * place, w0.to(tl.uint32, bitcast=True).to(tl.int64))
    tl.store(out + 4 * place + 1, w1.to(tl.uint32, bitcast=True).to(tl.int64))
    tl.store(out + 4 * place + 2, w2.to(tl.uint32, bitcast=True).to(tl.int64))
    tl.store(out + 4 * place + 3, w3.to(tl.uint32, bitcast=True).to(tl.int64))


def words(seed: int, first: int, count: int, device: str) -> Tensor:
    """(count, 4) int64 below 2³²; ``count`` is a power of two."""
    out = torch.empty(count, 4, dtype=torch.int64, device=device)
    _words[(1,)](out, seed, first, COUNT=count)
    return out
