"""Rotary positions of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor

from shardwright.kernels.attention import rope
from shardwright.kernels.dispatch import Dispatcher

THETA = 5e5


def _ours(
    kernels: Dispatcher, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, ...]:
    return rope.apply_rope(kernels, q, k, rope.Angles(q.shape[0], q.shape[-1], THETA))


def _eager(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    both = []
    for x in (q, k):
        real, imaginary = x.chunk(2, dim=-1)
        c, s = cos[:, None, None, :], sin[:, None, None, :]
        both.append(torch.cat((real * c - imaginary * s, imaginary * c + real * s), dim=-1))
    return tuple(both)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Each of queries and keys is read once and written once."""
    dim = max(sizes.head_dims)

    def make(maker: Make) -> tuple[Tensor, ...]:
        q = maker.normal(sizes.seq, 1, sizes.heads, dim)
        k = maker.normal(sizes.seq, 1, sizes.kv_heads, dim)
        return (
            q,
            k,
            *rope.angle_table(rope.Angles(sizes.seq, dim, THETA), maker.dtype, maker.device),
        )

    moved = 2 * sizes.seq * (sizes.heads + sizes.kv_heads) * dim * sizes.dtype.itemsize
    case = f"{sizes.seq} x ({sizes.heads} + {sizes.kv_heads}) heads of {dim}"
    common = {"family": "rope", "case": case, "make": make, "ours": _ours, "eager": _eager}
    common["inputs"] = 2  # the angles are constants
    yield Entry(mode="forward", work=Work(moved), **common)
    yield Entry(mode="backward", work=Work(moved), **common)
