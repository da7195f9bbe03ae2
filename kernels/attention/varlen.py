"""Self-attention within each of several packed sequences.

One kernel for all of them where the library has it (FlashAttention's variable-length form, Dao,
2023, section 3), else a call for each group of like lengths (``length_groups``). No token sees
another sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...spec.errors import InputError
from ..dispatch import Dispatcher, Family, Variant
from .flash import check_heads, flash_attention_with_lse
from .flash_variants import HEAD_STEP, dense_heads, flash_cuda_unsupported
from .length_groups import LengthGroups, length_groups

LEAST_LONGEST = 2
"""With a longest sequence of one token the kernel folds shared heads into rows of a batch, which
needs every sequence to have that token; empty ones may stand between them here."""


class _PackedFlash(Function):
    """The library's packed flash operation, with the arguments of torch 2.11–2.13."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bounds: Tensor,
        longest: int,
        causal: bool,
    ) -> Tensor:
        width = query.shape[-1]
        q, k, v = dense_heads(query, key, value, step=HEAD_STEP)
        longest = max(longest, LEAST_LONGEST)
        ctx.options = longest, longest, 0.0, causal
        ctx.scale = 1 / math.sqrt(width)
        out, lse, *random = torch.ops.aten._flash_attention_forward(
            q, k, v, bounds, bounds, *ctx.options, False, scale=ctx.scale
        )
        ctx.save_for_backward(q, k, v, out, lse, bounds, *random[:2])
        return out[..., :width]  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, bounds, *random = ctx.saved_tensors
        width = grads[0].shape[-1]
        (grad,) = dense_heads(grads[0], step=HEAD_STEP)
        gradients = torch.ops.aten._flash_attention_backward(
            grad, q, k, v, out, lse, bounds, bounds, *ctx.options, *random, scale=ctx.scale
        )
        return (*(g[..., :width] for g in gradients), None, None, None)


class _IntoGroups(Function):
    """Rows of tokens as groups hold them; padding is seen by no token, so has no gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, groups: LengthGroups) -> Tensor:
        ctx.groups = groups
        return rows.index_select(0, groups.taken.to(rows.device))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0].index_select(0, ctx.groups.placed.to(grads[0].device)), None


class _OutOfGroups(Function):
    """The inverse, without padding."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, groups: LengthGroups) -> Tensor:
        ctx.groups = groups
        return rows.index_select(0, groups.placed.to(rows.device))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        taken, padding = (t.to(grads[0].device) for t in (ctx.groups.taken, ctx.groups.padding))
        return grads[0].index_select(0, taken).index_fill_(0, padding, 0.0), None


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, causal: bool
) -> Tensor:
    ends = bounds.tolist()
    _check_bounds(ends, query.shape[0], longest)
    lengths = tuple(end - start for start, end in pairwise(ends))
    groups = length_groups(lengths, query.shape[1] * query.shape[2], causal)
    if groups is None:
        return _by_shape(query, key, value, [(1, length) for length in lengths], causal)
    into: Any = _IntoGroups.apply
    out_of: Any = _OutOfGroups.apply
    q, k, v = (into(t, groups) for t in (query, key, value))
    out: Tensor = out_of(_by_shape(q, k, v, groups.shapes, causal), groups)
    return out


def _by_shape(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    shapes: Sequence[tuple[int, int]],
    causal: bool,
) -> Tensor:
    """Attention within (sequences, tokens) of each shape, whose rows follow one another."""
    kernels, sizes = Dispatcher(), [count * length for count, length in shapes]
    # Gradients of parts of a split are joined once; each slice's would fill a whole tensor.
    split = zip(*(torch.split(t, sizes) for t in (query, key, value)), strict=True)
    parts = []
    for part, shape in zip(split, shapes, strict=True):
        q, k, v = (t.unflatten(0, shape).transpose(0, 1) for t in part)
        out, _ = flash_attention_with_lse(kernels, q, k, v, causal)
        parts.append(out.transpose(0, 1).flatten(0, 1))
    return torch.cat(parts)


def _check_bounds(ends: list[int], tokens: int, longest: int) -> None:
    lengths = [end - start for start, end in pairwise(ends)]
    if ends[0] != 0 or ends[-1] != tokens or min(lengths) < 0:
        raise InputError("cu_seqlens", ends, f"0 rising to the {tokens} tokens")
    if max(lengths) > longest:
        raise InputError("longest", longest, f"at least the {max(lengths)} tokens of one sequence")


VARLEN_ATTENTION = Family(
    "varlen_attention",
    (
        Variant("packed_flash", _PackedFlash.apply, flash_cuda_unsupported),
        Variant("grouped", _grouped, fused=False),
    ),
)
"""Decided by the queries, (tokens, heads, head_dim)."""


def varlen_attention(
    kernels: Dispatcher,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    causal: bool = True,
) -> Tensor:
    """Attention of every token to the tokens of its own sequence.

    Args:
        kernels: of the run.
        query: (tokens, heads, head_dim).
        key: (tokens, kv_heads, head_dim), kv_heads dividing heads.
        value: like ``key``.
        cu_seqlens: (sequences + 1,) int32 on the same device: 0, then each sequence's end; some may
            be empty. Checked only where read on the host anyway, which the packed kernel never
            does.
        longest: tokens of the longest sequence, or a bound on them.
        causal: token i of a sequence sees its tokens 0..i only.

    Returns:
        Like ``query``.

    Raises:
        InputError: shapes, type or ends do not fit together.
    """
    check_heads(query, key, value)
    if key.shape[0] != query.shape[0]:
        raise InputError("key", tuple(key.shape), f"{query.shape[0]} tokens")
    if cu_seqlens.dtype != torch.int32 or cu_seqlens.dim() != 1 or cu_seqlens.numel() < 2:
        description = f"{str(cu_seqlens.dtype).removeprefix('torch.')} {tuple(cu_seqlens.shape)}"
        raise InputError("cu_seqlens", description, "int32 (sequences + 1,), one sequence or more")
    if not query.numel():
        return query.clone()
    out: Tensor = kernels.pick(VARLEN_ATTENTION, query)(
        query, key, value, cu_seqlens.contiguous(), longest, causal
    )
    return out


def varlen_attention_reference(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, causal: bool = True
) -> Tensor:
    """Float64 reference; shapes as :func:`varlen_attention`."""
    groups = query.shape[1] // key.shape[1]
    q, k, v = query.double(), *(t.double().repeat_interleave(groups, 1) for t in (key, value))
    place = torch.arange(q.shape[0], device=q.device)
    sequence = torch.bucketize(place, cu_seqlens[1:].to(place), right=True)
    hidden = sequence[:, None] != sequence[None, :]
    if causal:
        hidden |= place[:, None] < place[None, :]
    scores = torch.einsum("shd,thd->hst", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("hst,thd->shd", scores.masked_fill(hidden, -math.inf).softmax(-1), v)


__all__ = ["VARLEN_ATTENTION", "varlen_attention", "varlen_attention_reference"]
