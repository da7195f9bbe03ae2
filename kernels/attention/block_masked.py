"""Attention under a mask that leaves whole score blocks empty.

On CUDA, the library's compiled flex attention, which skips empty blocks (Dong et al., 2024, "Flex
Attention"); elsewhere the scores are written out under a mask table, because flex attention on CPU
has no backward pass. For a plain causal mask ``attention.flash_attention`` is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..dispatch import Dispatcher, Family, Request, Variant
from ..fused import triton_unsupported
from .flash import check_heads
from .masks import Mask, visible, visible_in_blocks

MIN_HEAD_DIM, MAX_HEAD_DIM = 16, 256
"""head_dim that flex attention takes (its products need 16) and has tuned block sizes for."""
BLOCK = 128
"""Queries and keys of a block of scores: the library's usual size."""
MAX_CACHED_MAPS = 16
"""Maps of empty blocks that are kept: a few for each mask of a run, the last packings of data."""


class _Shape(NamedTuple):
    """Compile key of flex attention; sequences and windows are dynamic."""

    kind: str
    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    one_sample: bool
    trains: bool


@cache
def _attend(shape: _Shape) -> Callable[..., Any]:
    """Compiled flex attention; raises rather than fall back to eager."""
    from torch.nn.attention.flex_attention import flex_attention

    def attend(*args: Any, **options: Any) -> Any:
        return flex_attention(*args, **options)

    return torch.compile(_apart(attend), fullgraph=True)


def _apart(function: Any) -> FunctionType:
    """Copy the function with a code object of its own.

    The compiler counts recompilations per code object and gives up after eight (torch 2.11, 2.13).
    """
    code = function.__code__.replace(co_name=f"{function.__name__}_apart")
    return FunctionType(code, function.__globals__, closure=function.__closure__)


@lru_cache(maxsize=MAX_CACHED_MAPS)
def _block_map(mask: Mask, batch: int, seq: int, device: torch.device) -> Any:
    """Map of empty, full and partial score blocks for flex attention."""
    from torch.nn.attention.flex_attention import BlockMask

    counts = visible_in_blocks(mask, batch, seq, device, BLOCK)
    full = counts == BLOCK * BLOCK
    mixed_counts, mixed = _listed((counts > 0) & ~full)
    full_counts, whole = _listed(full)
    return BlockMask.from_kv_blocks(
        mixed_counts,
        mixed,
        full_counts,
        whole,
        BLOCK_SIZE=BLOCK,
        mask_mod=mask.function(device),
        seq_lengths=(seq, seq),
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), order.to(torch.int32)


def _flex(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
    batch, heads, seq, width = query.shape
    trains = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    shape = _Shape(mask.kind, heads, key.shape[1], width, query.dtype, batch == 1, trains)
    blocks = _block_map(mask, batch, seq, query.device)
    out: Tensor = _attend(shape)(
        query, key, value, block_mask=blocks, enable_gqa=heads != key.shape[1]
    )
    return out


def _flex_unsupported(request: Request) -> str | None:
    if request.device.type != "cuda":
        return "not a CUDA device"
    if reason := triton_unsupported(request):
        return reason
    width = request.shape[-1]
    if not MIN_HEAD_DIM <= width <= MAX_HEAD_DIM:
        return f"heads of {width} are outside {MIN_HEAD_DIM} to {MAX_HEAD_DIM}"
    return None


def _scores(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
    batch, heads, seq, _ = query.shape
    table = visible(mask, batch, seq, query.device)
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=table, enable_gqa=heads != key.shape[1]
        )


BLOCK_MASKED_ATTENTION = Family(
    "block_masked_attention",
    (
        Variant("flex", _flex, _flex_unsupported),
        Variant("scores", _scores, fused=False),
    ),
)
"""Decided by the queries, (batch, heads, seq, head_dim)."""


def block_masked_attention(
    kernels: Dispatcher, query: Tensor, key: Tensor, value: Tensor, mask: Mask
) -> Tensor:
    """Attention of every query to the keys its mask shows.

    Args:
        kernels: of the run.
        query: (seq, batch, heads, head_dim).
        key: (seq, batch, kv_heads, head_dim), kv_heads dividing heads.
        value: like ``key``.
        mask: see ``masks``.

    Returns:
        (seq, batch, heads · head_dim), as ``attention.flash_attention``.

    Raises:
        InputError: the shapes, or shapes and mask, do not fit together.
    """
    check_heads(query, key, value)
    seq, batch = query.shape[:2]
    mask.check(batch, seq)
    if not query.numel():
        return query.flatten(2)
    q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
    out: Tensor = kernels.pick(BLOCK_MASKED_ATTENTION, q)(q, k, v, mask)
    return out.permute(2, 0, 1, 3).flatten(2)


def block_masked_attention_reference(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor
) -> Tensor:
    """Float64 reference; operands as in :func:`block_masked_attention`.

    ``table`` is (batch or 1, 1, seq, seq), true where a query sees a key.
    """
    groups = query.shape[2] // key.shape[2]
    q, k, v = query.double(), *(t.double().repeat_interleave(groups, 2) for t in (key, value))
    scores = torch.einsum("sbhd,tbhd->bhst", q, k) / math.sqrt(q.shape[-1])
    probabilities = scores.masked_fill(~table, -math.inf).softmax(-1)
    return torch.einsum("bhst,tbhd->sbhd", probabilities, v).flatten(2)


__all__ = [
    "BLOCK_MASKED_ATTENTION",
    "block_masked_attention",
    "block_masked_attention_reference",
]
