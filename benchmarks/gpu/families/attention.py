"""Causal flash attention with fewer heads of keys than of queries."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor
from torch.nn import functional as F

from shardwright.kernels.attention.attention import flash_attention
from shardwright.kernels.dispatch import Dispatcher


def _ours(kernels: Dispatcher, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return flash_attention(query, key, value)


def _eager(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return _library(query, key, value, repeat=False)


def _reference(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Repeated keys and values: float32 then has a kernel without scores."""
    return _library(query, key, value, repeat=True)


def _library(query: Tensor, key: Tensor, value: Tensor, repeat: bool) -> Tensor:
    groups = query.shape[2] // key.shape[2]
    q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
    if repeat:
        k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=not repeat)
    return out.permute(2, 0, 1, 3).flatten(2)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Two products forward, five backward, of the causal scores."""
    for dim in sizes.head_dims:

        def make(maker: Make, dim: int = dim) -> tuple[Tensor, ...]:
            heads = (sizes.heads, sizes.kv_heads, sizes.kv_heads)
            return tuple(maker.normal(sizes.seq, 1, count, dim) for count in heads)

        q, k = (sizes.seq * n * dim * sizes.dtype.itemsize for n in (sizes.heads, sizes.kv_heads))
        scores = sizes.seq * (sizes.seq + 1) // 2
        product = 2 * scores * sizes.heads * dim
        common = {
            "family": "attention",
            "case": f"{sizes.seq} x {sizes.heads} / {sizes.kv_heads} heads of {dim}",
            "make": make,
            "ours": _ours,
            "eager": _eager,
            "reference": _reference,
            "bound": "matmul",
        }
        yield Entry(mode="forward", work=Work(2 * q + 2 * k, 2 * product), **common)
        yield Entry(mode="backward", work=Work(4 * q + 4 * k, 5 * product), **common)
