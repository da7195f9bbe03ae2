"""Ring attention step: local queries over one rank's keys and values.

Each step is one operation, so that a recorded run names it as the lowering does, which counts a
step as one causal square of local length. A rank really computes the square of its own keys, or the
part of another rank's keys that its queries see; over a ring with a zigzag layout both add up to
the same (Liu et al., arXiv:2310.01889; Llama 3, arXiv:2407.21783, section 3.3.2). Tensors are
(batch, heads, seq, head_dim).

``parts`` are rectangles of three numbers: queries ``first`` to before ``end`` see the first
``keys`` keys. None: the step is a causal square. A query outside all of them sees nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ...spec.errors import RunError
from ..dispatch import Family, Request, choose
from ..fused import operation
from .flash_variants import FLASH_BLOCK_BACKWARD, FLASH_LSE

Grads = tuple[Tensor, Tensor, Tensor]
_FAMILIES = {family.name: family for family in (FLASH_LSE, FLASH_BLOCK_BACKWARD)}


@cache
def _flash(name: str, request: Request) -> Callable[..., Any]:
    """The library's flash kernel; never falls back to written-out scores."""
    family: Family = _FAMILIES[name]
    choice = choose(family, request)
    if not choice.variant.fused:
        why = "; ".join(f"{variant}: {reason}" for variant, reason in choice.passed_over)
        kind = f"{str(request.dtype).removeprefix('torch.')} with head_dim {request.shape[-1]}"
        raise RunError(f"no flash attention for {kind}, which a ring merges the parts of ({why})")
    return choice.variant.run


def _kernel(family: Family, query: Tensor) -> Callable[..., Any]:
    return _flash(family.name, Request(query.device, query.dtype, tuple(query.shape)))


def _rectangles(parts: list[int]) -> Iterator[tuple[slice, int]]:
    for first, end, keys in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        yield slice(first, end), keys


def _covers(parts: list[int], queries: int) -> bool:
    return parts[:2] == [0, queries] and len(parts) == 3


def fake_forward(
    query: Tensor, key: Tensor, value: Tensor, parts: list[int] | None
) -> tuple[Tensor, Tensor]:
    """Empty outputs of a forward step."""
    return query.new_empty(*query.shape[:-1], value.shape[-1]), query.new_empty(
        query.shape[:-1], dtype=torch.float32
    )


@operation(
    "flash_step(Tensor query, Tensor key, Tensor value, int[]? parts) -> (Tensor, Tensor)",
    fake_forward,
)
def flash_step(
    query: Tensor, key: Tensor, value: Tensor, parts: list[int] | None
) -> tuple[Tensor, Tensor]:
    """Output like the queries, and log-sum-exps (batch, heads, seq) float32.

    A query that sees nothing has zeros and -inf.
    """
    run = _kernel(FLASH_LSE, query)
    if parts is None:
        return run(query, key, value, True)  # type: ignore[no-any-return]
    if _covers(parts, query.shape[2]):
        keys = parts[2]
        return run(query, key[:, :, :keys], value[:, :, :keys], False)  # type: ignore[no-any-return]
    batch, heads, seq, _ = query.shape
    out = query.new_zeros(seq, batch, heads, value.shape[-1]).permute(1, 2, 0, 3)
    log_sum = query.new_full((batch, heads, seq), -math.inf, dtype=torch.float32)
    for rows, keys in _rectangles(parts):
        seen = run(query[:, :, rows], key[:, :, :keys], value[:, :, :keys], False)
        out[:, :, rows], log_sum[:, :, rows] = seen
    return out, log_sum


def fake_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    parts: list[int] | None,
) -> Grads:
    """Empty outputs of a backward step."""
    return _batch_first(query), _batch_first(key), _batch_first(value)


def _batch_first(like: Tensor) -> Tensor:
    batch, heads, seq, width = like.shape
    return like.new_empty(batch, seq, heads, width).transpose(1, 2)


@operation(
    "flash_step_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, "
    "Tensor log_sum, int[]? parts) -> (Tensor, Tensor, Tensor)",
    fake_backward,
)
def flash_step_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    parts: list[int] | None,
) -> Grads:
    """Gradients of queries, keys and values from one ring step.

    ``out`` and ``log_sum`` are those of the whole ring. Each gradient lies (batch, seq, heads,
    head_dim) in memory.
    """
    run = _kernel(FLASH_BLOCK_BACKWARD, query)
    if parts is None:
        grads = run(grad, query, key, value, out, log_sum, True)
        return tuple(_laid_out(g) for g in grads)  # type: ignore[return-value]
    of_query, of_key, of_value = (_batch_first(x).zero_() for x in (query, key, value))
    for rows, keys in _rectangles(parts):
        q, o, g = (x[:, :, rows] for x in (query, out, grad))
        k, v = key[:, :, :keys], value[:, :, :keys]
        piece = run(g, q, k, v, o, log_sum[:, :, rows], False)
        of_query[:, :, rows] = piece[0]
        of_key[:, :, :keys] += piece[1]
        of_value[:, :, :keys] += piece[2]
    return of_query, of_key, of_value


@operation(
    "flash_full_step(Tensor query, Tensor key, Tensor value) -> (Tensor, Tensor)",
    partial(fake_forward, parts=None),
)
def flash_full_step(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`flash_step` without a mask: every query sees all keys."""
    return _kernel(FLASH_LSE, query)(query, key, value, False)  # type: ignore[no-any-return]


@operation(
    "flash_full_step_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, "
    "Tensor log_sum) -> (Tensor, Tensor, Tensor)",
    partial(fake_backward, parts=None),
)
def flash_full_step_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sum: Tensor
) -> Grads:
    """Gradients of an unmasked step, as :func:`flash_step_backward`."""
    grads = _kernel(FLASH_BLOCK_BACKWARD, query)(grad, query, key, value, out, log_sum, False)
    return tuple(_laid_out(g) for g in grads)  # type: ignore[return-value]


def _laid_out(grad: Tensor) -> Tensor:
    return grad.transpose(1, 2).contiguous().transpose(1, 2)


def _fake_merge(out: Tensor, log_sum: Tensor, part: Tensor, part_sum: Tensor) -> None:
    """Writes to its operands and makes nothing."""


@operation(
    "merge_attention_(Tensor(a!) out, Tensor(b!) log_sum, Tensor part, Tensor part_sum) -> ()",
    _fake_merge,
)
def merge_attention_(out: Tensor, log_sum: Tensor, part: Tensor, part_sum: Tensor) -> None:
    """Merge one more key set into a running result, in place.

    Sums as in ``ring_merge.merge_attention``; every query has seen a key already.
    """
    weight = torch.sigmoid(part_sum - log_sum).unsqueeze(-1)
    out.lerp_(part.to(out.dtype), weight.to(out.dtype))
    log_sum.copy_(torch.logaddexp(log_sum, part_sum))


__all__ = [
    "fake_backward",
    "fake_forward",
    "flash_full_step",
    "flash_full_step_backward",
    "flash_step",
    "flash_step_backward",
    "merge_attention_",
]
