"""Attention under a mask that leaves whole blocks of the scores empty.

On CUDA devices the library's flex attention, compiled, which skips the empty blocks (Dong et al.,
2024, "Flex Attention"); elsewhere the scores written out under the mask as a table. Flex attention
on cores has no backward pass. For a plain causal mask ``attention.flash_attention`` is the faster
kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .dispatch import Dispatcher, Family, Request, Variant
from .flash import check_heads
from .fused import triton_refuses
from .masks import Mask, visible

NARROWEST_HEAD, WIDEST_HEAD = 16, 256
"""head_dim that flex attention takes (its products need 16) and has tuned block sizes for."""
KEPT_MAPS = 16
"""Maps of empty blocks that are kept: a few for each mask of a run, the last packings of data."""


@cache
def _compiled(kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Flex attention and the maker of its block maps, compiled once for each kind of mask.

    ``fullgraph``: what cannot be compiled is an error, never the slow uncompiled form.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def attend(*args: Any, **options: Any) -> Any:
        return flex_attention(*args, **options)

    return torch.compile(attend, fullgraph=True), torch.compile(create_block_mask)


@lru_cache(maxsize=KEPT_MAPS)
def _block_map(mask: Mask, batch: int, seq: int, device: torch.device) -> Any:
    make = _compiled(mask.kind)[1]
    samples = batch if mask.per_sample else None
    return make(mask.function(device), samples, None, seq, seq, device=device)


def _flex(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
    batch, heads, seq, _ = query.shape
    blocks = _block_map(mask, batch, seq, query.device)
    out: Tensor = _compiled(mask.kind)[0](
        query, key, value, block_mask=blocks, enable_gqa=heads != key.shape[1]
    )
    return out


def _flex_refuses(request: Request) -> str | None:
    if request.device.type != "cuda":
        return "not a CUDA device"
    if reason := triton_refuses(request):
        return reason
    width = request.shape[-1]
    if not NARROWEST_HEAD <= width <= WIDEST_HEAD:
        return f"heads of {width} are outside {NARROWEST_HEAD} to {WIDEST_HEAD}"
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
        Variant("flex", _flex, _flex_refuses),
        Variant("scores", _scores, fused=False),
    ),
)
"""Decided by the queries, (batch, heads, seq, head_dim)."""


def block_masked_attention(
    kernels: Dispatcher, query: Tensor, key: Tensor, value: Tensor, mask: Mask
) -> Tensor:
    """Attention of every query to the keys that the mask shows it.

    Args:
        kernels: of the run.
        query: (seq, batch, heads, head_dim).
        key: (seq, batch, kv_heads, head_dim), kv_heads dividing heads.
        value: like ``key``.
        mask: see ``masks``.

    Returns:
        (seq, batch, heads · head_dim), as ``attention.flash_attention``.

    Raises:
        InputError: the shapes, or those and the mask, do not fit together.
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
    """The definition in float64.

    Args:
        query: as :func:`block_masked_attention`.
        key: likewise.
        value: likewise.
        table: (batch or 1, 1, seq, seq), true where a query sees a key.
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
