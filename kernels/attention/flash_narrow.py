"""CPU flash attention with values narrower than keys.

The library's CPU kernel takes one width, so values are zero-padded and the padding's output is
dropped: latent attention (DeepSeek-V2) gets a flash form wherever others have one. Each pass is one
operation, named as in the cost model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from ..fused import operation


def _fake_forward(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, seq, _ = query.shape
    return token_first(query, value.shape[-1]), query.new_empty(
        batch, heads, seq, dtype=torch.float32
    )


def token_first(query: Tensor, width: int) -> Tensor:
    """Empty (batch, heads, seq, width) whose heads are contiguous per token."""
    batch, heads, seq, _ = query.shape
    return query.new_empty(seq, batch, heads, width).permute(1, 2, 0, 3)


def filled_up(x: Tensor, width: int) -> Tensor:
    """``x`` zero-padded to ``width`` along the last dimension."""
    return F.pad(x, (0, width - x.shape[-1]))


@operation(
    "flash_attention_band(Tensor query, Tensor key, Tensor value) -> (Tensor, Tensor)",
    _fake_forward,
)
def _forward(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    width = value.shape[-1]
    out, log_sum = torch._scaled_dot_product_flash_attention_for_cpu(
        query, key, filled_up(value, query.shape[-1]), 0.0, True
    )
    return token_first(query, width).copy_(out[..., :width]), log_sum


def _fake_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sum: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


@operation(
    "flash_attention_band_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out,"
    " Tensor log_sum) -> (Tensor, Tensor, Tensor)",
    _fake_backward,
)
def _backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sum: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    width = query.shape[-1]
    wide = [filled_up(x, width) for x in (grad, value, out)]
    grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        wide[0], query, key, wide[1], wide[2], log_sum, 0.0, True
    )
    return grads[0], grads[1], grads[2][..., : value.shape[-1]].clone()


class _NarrowFlash(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out, log_sum = _forward(query, key, value)
        ctx.save_for_backward(query, key, value, out, log_sum)
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gradients: tuple[Tensor, Tensor, Tensor] = _backward(grads[0], *ctx.saved_tensors)
        return gradients


def narrow_flash_on_cores(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention on CPU without a score matrix.

    Args:
        query: (batch, heads, seq, key width).
        key: (batch, kv_heads, seq, key width).
        value: (batch, kv_heads, seq, a smaller width).

    Returns:
        (batch, heads, seq, value width).

    Raises:
        RuntimeError: the library has no flash kernel for these tensors.
    """
    out: Tensor = _NarrowFlash.apply(query, key, value)  # type: ignore[no-untyped-call]
    return out


__all__ = ["filled_up", "narrow_flash_on_cores", "token_first"]
