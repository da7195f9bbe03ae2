"""Attention within each of the documents that share a sample."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...kernels.attention.varlen import varlen_attention
from ...kernels.dispatch import Dispatcher

if TYPE_CHECKING:
    from .block import Block

DocumentEnds = tuple[tuple[int, ...], ...]
"""By sample, where its documents end: rising, the last at its number of tokens."""


def document_attention(
    kernels: Dispatcher,
    ends: DocumentEnds,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = True,
) -> Tensor:
    """Causal attention of every token to its own document.

    Args:
        kernels: of the run.
        ends: of the documents of each sample.
        query: (seq, batch, heads, head_dim).
        key: (seq, batch, kv_heads, head_dim).
        value: like ``key``.
        causal: mask later tokens, too.

    Returns:
        (seq, batch, heads · head_dim).
    """
    seq, batch = query.shape[:2]
    bounds = [0] + [seq * n + end for n, sample in enumerate(ends) for end in sample]
    longest = max(after - before for before, after in itertools.pairwise(bounds))
    q, k, v = (x.transpose(0, 1).flatten(0, 1) for x in (query, key, value))
    cu_seqlens = torch.tensor(bounds, dtype=torch.int32, device=query.device)
    out = varlen_attention(kernels, q, k, v, cu_seqlens, longest, causal)
    return out.flatten(1).view(batch, seq, -1).transpose(0, 1)


def of_documents(body: Callable[..., Any], ends: DocumentEnds) -> Callable[..., Any]:
    """A block's computation on samples of these documents, rerun on the same ones."""
    return partial(_run, body, ends)


def _run(body: Callable[..., Any], ends: DocumentEnds, block: Block, *inputs: Any) -> Any:
    attend = block.attend
    block.attend = partial(document_attention, block.kernels, ends)
    try:
        return body(block, *inputs)
    finally:
        block.attend = attend


__all__ = ["DocumentEnds", "document_attention", "of_documents"]
