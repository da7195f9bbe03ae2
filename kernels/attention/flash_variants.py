"""Kernels behind attention with log-sum-exp, all (batch, heads, seq, head_dim).

The library's flash kernels (Dao et al., 2022, "FlashAttention", algorithms 2 and 4) for CUDA and
CPU, and the scores written out in float32. cuDNN's attention is left out: it gives the same results
for some of the same shapes, and no measurement here favors either.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ..dispatch import Family, Request, Variant
from ..fused import capability

MAX_HEAD_DIM = 256
"""head_dim up to which the CUDA kernel is built."""
HEAD_STEP = 8
"""The CUDA kernel takes heads of a multiple of so many elements; others are padded."""


def flash_cuda_unsupported(request: Request) -> str | None:
    """Return why CUDA flash attention cannot run a request, or None.

    The conditions are those of ``mha_fwd`` and ``mha_bwd`` in
    ``aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp``.
    """
    if request.device.type != "cuda":
        return "not a CUDA device"
    if not torch.backends.cuda.is_flash_attention_available():
        return "this build of torch has no flash kernel"
    version = capability(request.device.index or 0)
    if version < (8, 0):
        return f"compute capability {version[0]}.{version[1]} is below 8.0"
    if request.dtype not in (torch.bfloat16, torch.float16):
        return f"not for {str(request.dtype).removeprefix('torch.')}"
    width = request.shape[-1]
    return f"heads of {width} are wider than {MAX_HEAD_DIM}" if width > MAX_HEAD_DIM else None


def _flash_cpu_unsupported(request: Request) -> str | None:
    return None if request.device.type == "cpu" else "not a core"


def dense_heads(*tensors: Tensor, step: int = 1) -> tuple[Tensor, ...]:
    """Dense heads, zero-padded to a multiple of ``step``."""
    return tuple(_dense(t, -t.shape[-1] % step) for t in tensors)


def _dense(x: Tensor, missing: int) -> Tensor:
    if missing:
        return F.pad(x, (0, missing))
    return x if x.stride(-1) == 1 else x.contiguous()


def _cuda_forward(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    width = query.shape[-1]
    q, k, v = dense_heads(query, key, value, step=HEAD_STEP)
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, causal, scale=1 / math.sqrt(width)
    )
    return out[..., :width], lse


def _cuda_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    width = query.shape[-1]
    grad, q, k, v, out = dense_heads(grad, query, key, value, out, step=HEAD_STEP)
    no_dropout = torch.empty(2, dtype=torch.uint64, device=query.device)
    grads = torch.ops.aten._scaled_dot_product_flash_attention_backward(
        grad,
        q,
        k,
        v,
        out,
        lse.contiguous(),
        None,
        None,
        query.shape[2],
        key.shape[2],
        0.0,
        causal,
        no_dropout,
        no_dropout,
        scale=1 / math.sqrt(width),
    )
    return tuple(g[..., :width] for g in grads)


def _cpu_forward(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    q, k, v = dense_heads(query, key, value)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return out, lse


def _cpu_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dense = dense_heads(grad, query, key, value, out)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return backward(*dense, lse, 0.0, causal)  # type: ignore[no-any-return]


def wide(*tensors: Tensor) -> list[Tensor]:
    """Cast to the accumulation type: float64 stays, all else float32."""
    return [t if t.dtype == torch.float64 else t.float() for t in tensors]


def _grouped(query: Tensor, key: Tensor) -> Tensor:
    return query.unflatten(1, (key.shape[1], -1))  # type: ignore[no-untyped-call,no-any-return]


def _scores(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    scores = _grouped(query, key) @ key.unsqueeze(2).transpose(-1, -2)
    scores = scores / math.sqrt(query.shape[-1])
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).triu_(1)
        scores.masked_fill_(future, -math.inf)
    return scores


def _plain_forward(
    query: Tensor, key: Tensor, value: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    q, k, v = wide(query, key, value)
    scores = _scores(q, k, causal)
    lse = scores.logsumexp(-1, keepdim=True)
    out = (scores - lse).exp_() @ v.unsqueeze(2)
    return out.flatten(1, 2).to(query.dtype), lse.flatten(1, 2).squeeze(-1)


def _plain_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    g, q, k, v, o = wide(grad, query, key, value, out)
    total = _grouped(lse.unsqueeze(-1), k)
    probabilities = (_scores(q, k, causal) - total).exp_()
    along = _grouped((g * o).sum(-1, keepdim=True), k)
    g = _grouped(g, k)
    grad_value = (probabilities.transpose(-1, -2) @ g).sum(2)
    grad_scores = (g @ v.unsqueeze(2).transpose(-1, -2) - along) * probabilities
    grad_scores /= math.sqrt(query.shape[-1])
    grad_query = (grad_scores @ k.unsqueeze(2)).flatten(1, 2)
    grad_key = (grad_scores.transpose(-1, -2) @ _grouped(q, k)).sum(2)
    return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype)


FLASH_LSE = Family(
    "flash_attention_lse",
    (
        Variant("flash", _cuda_forward, flash_cuda_unsupported),
        Variant("flash_for_cpu", _cpu_forward, _flash_cpu_unsupported),
        Variant("scores", _plain_forward, fused=False),
    ),
)
"""Decided by the queries, (batch, heads, seq, head_dim)."""
FLASH_BLOCK_BACKWARD = Family(
    "flash_attention_block_backward",
    (
        Variant("flash", _cuda_backward, flash_cuda_unsupported),
        Variant("flash_for_cpu", _cpu_backward, _flash_cpu_unsupported),
        Variant("scores", _plain_backward, fused=False),
    ),
)
"""Decided by the queries, (batch, heads, seq, head_dim)."""


__all__ = [
    "FLASH_BLOCK_BACKWARD",
    "FLASH_LSE",
    "HEAD_STEP",
    "dense_heads",
    "flash_cuda_unsupported",
    "wide",
]
