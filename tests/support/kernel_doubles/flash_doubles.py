"""CUDA's flash operations, played on cores by the definition under the library's own schemas.

They check what calls are made: argument for argument by the schema of the installed torch, with
the conditions that the real kernels put on shapes and layouts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise RuntimeError(f"the kernel refuses: {what}")


def _check(*tensors: Tensor) -> None:
    for t in tensors:
        _require(t.dtype in (torch.bfloat16, torch.float16), "type")
        _require(t.stride(-1) == 1, "gaps between elements of a head")
        _require(t.shape[-1] % 8 == 0 and t.shape[-1] <= 256, "width of a head")
        _require(t.dtype == tensors[0].dtype, "mixed types")


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """(batch, heads, s, d) in float64."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = q.double(), *(t.double().repeat_interleave(groups, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
        scores = scores.masked_fill(future, -math.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, s: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By the given output and log-sum-exp, as the kernels do."""
    groups = q.shape[1] // k.shape[1]
    wide_k, wide_v = (t.double().repeat_interleave(groups, 1) for t in (k, v))
    scores = q.double() @ wide_k.transpose(-1, -2) * s
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    p = (scores - lse.double().unsqueeze(-1)).exp()
    g = grad.double()
    inner = g @ wide_v.transpose(-1, -2) - (g * out.double()).sum(-1, keepdim=True)
    grad_scores = p * inner * s
    grad_k = grad_scores.transpose(-1, -2) @ q.double()
    grad_v = p.transpose(-1, -2) @ g
    shared = (t.unflatten(1, (k.shape[1], groups)).sum(2) for t in (grad_k, grad_v))
    return tuple(t.to(q.dtype) for t in (grad_scores @ wide_k, *shared))  # type: ignore[return-value]


def _dense_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    _check(query, key, value)
    assert scale is not None
    assert not dropout_p
    out, lse = _attend(query, key, value, is_causal, scale)
    random = torch.zeros(2, dtype=torch.uint64)
    none = torch.empty(0)
    sizes = (query.shape[2], key.shape[2])
    return out.to(query.dtype), lse.float(), none, none, *sizes, random, none, none


def _dense_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    _check(grad_out, query, key, value, out)
    _require(cum_seq_q is None and cum_seq_k is None, "lengths in the dense form")
    _require((max_q, max_k) == (query.shape[2], key.shape[2]), "sizes")
    _require(logsumexp.is_contiguous() and logsumexp.dtype == torch.float32, "log-sum-exp")
    assert scale is not None
    return _backward(grad_out, query, key, value, out, logsumexp, is_causal, scale)


def _sequences(bounds: Tensor, *tensors: Tensor) -> Iterator[tuple[slice, list[Tensor]]]:
    """Each non-empty sequence's part of (tokens, heads, d), as (1, heads, s, d)."""
    ends = bounds.tolist()
    for start, end in pairwise(ends):
        if end > start:
            part = slice(start, end)
            yield part, [t[part].transpose(0, 1).unsqueeze(0) for t in tensors]


def _check_lengths(bounds: Tensor, max_q: int, max_k: int) -> None:
    _require(bounds.dtype == torch.int32 and bounds.is_contiguous(), "cumulative lengths")
    _require(max_q > 1, "the folded form, which needs one token in every sequence")
    _require(int(bounds.diff().max()) <= min(max_q, max_k), "longest sequence")


def _packed_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    **rest: Any,
) -> tuple[Tensor, ...]:
    _check(query, key, value)
    _check_lengths(cum_seq_q, max_q, max_k)
    assert scale is not None
    out = torch.full_like(query, math.nan)
    lse = query.new_full((query.shape[1], query.shape[0]), math.nan, dtype=torch.float32)
    for part, (q, k, v) in _sequences(cum_seq_q, query, key, value):
        found, total = _attend(q, k, v, is_causal, scale)
        out[part], lse[:, part] = found[0].transpose(0, 1).to(out.dtype), total[0].float()
    return out, lse, torch.zeros(2, dtype=torch.uint64), torch.empty(0), torch.empty(0)


def _packed_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    **rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    _check(grad_out, query, key, value, out)
    _check_lengths(cum_seq_q, max_q, max_k)
    assert scale is not None
    grads = tuple(torch.full_like(t, math.nan) for t in (query, key, value))
    for part, (g, q, k, v, o) in _sequences(cum_seq_q, grad_out, query, key, value, out):
        found = _backward(g, q, k, v, o, logsumexp[:, part].unsqueeze(0), is_causal, scale)
        for grad, piece in zip(grads, found, strict=True):
            grad[part] = piece[0].transpose(0, 1)
    return grads  # type: ignore[return-value]


@contextmanager
def cuda_flash_on_cores() -> Iterator[None]:
    """While this lasts, CUDA's four flash operations exist on cores."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_scaled_dot_product_flash_attention", _dense_forward, "CPU")
        library.impl("_scaled_dot_product_flash_attention_backward", _dense_backward, "CPU")
        library.impl("_flash_attention_forward", _packed_forward, "CPU")
        library.impl("_flash_attention_backward", _packed_backward, "CPU")
        yield
