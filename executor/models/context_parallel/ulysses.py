"""Ulysses: tokens exchanged for heads before attention, and back after it.

Runs what ``shardwright.costmodel.layers.ulysses`` prices (Jacobs et al., arXiv:2309.14509, section
3).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ....kernels.marks import mark
from ....spec.report.trace_marks import COMMUNICATE_CP


def _exchanged(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """All-to-all of equal parts of contiguous ``x`` along its first axis."""
    out = torch.empty_like(x)
    with mark(COMMUNICATE_CP):
        dist.all_to_all_single(out, x, group=group)
    return out


def _gather_tokens(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """All-to-all from local tokens to local heads.

    (tokens / P, batch, heads, width) becomes (tokens, batch, heads / P, width).
    """
    ranks = group.size()
    tokens, batch, heads, width = x.shape
    by_rank = x.view(tokens, batch, ranks, heads // ranks, width).permute(2, 0, 1, 3, 4)
    packed = by_rank.clone(memory_format=torch.contiguous_format)
    return _exchanged(packed, group).flatten(0, 1)


def _gather_heads(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """All-to-all from local heads to local tokens.

    (tokens, batch, heads / P, width) becomes (tokens / P, batch, heads, width).
    """
    ranks = group.size()
    tokens, batch, heads, width = x.shape
    received = _exchanged(x.contiguous(), group)
    by_rank = received.view(ranks, tokens // ranks, batch, heads, width).permute(1, 2, 0, 3, 4)
    return by_rank.clone(memory_format=torch.contiguous_format).flatten(2, 3)


class _TokensForHeads(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _gather_tokens(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _gather_heads(grads[0], ctx.group), None


class _HeadsForTokens(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int, group: dist.ProcessGroup) -> Tensor:
        ctx.group, ctx.heads = group, heads
        local: Tensor = x.unflatten(2, (heads // group.size(), -1))  # type: ignore[no-untyped-call]
        return _gather_heads(local, group).flatten(2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        grad_heads = grads[0].unflatten(2, (ctx.heads, -1))  # type: ignore[no-untyped-call]
        return _gather_tokens(grad_heads, ctx.group).flatten(2), None, None


def tokens_for_heads(x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """All tokens of local heads, from all heads of local tokens.

    (tokens / P, batch, heads, width) becomes (tokens, batch, heads / P, width); P is 1 without a
    group.
    """
    if group is None:
        return x
    out: Tensor = _TokensForHeads.apply(x, group)  # type: ignore[no-untyped-call]
    return out


def heads_for_tokens(x: Tensor, heads: int, group: dist.ProcessGroup | None) -> Tensor:
    """All heads of local tokens, from all tokens of local heads.

    (tokens, batch, heads / P · width) becomes (tokens / P, batch, heads · width); P is 1 without a
    group.
    """
    if group is None:
        return x
    out: Tensor = _HeadsForTokens.apply(x, heads, group)  # type: ignore[no-untyped-call]
    return out


__all__ = ["heads_for_tokens", "tokens_for_heads"]
