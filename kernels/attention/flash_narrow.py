"""Flash attention of values that are narrower than keys, on cores.

The library's kernel for cores takes one width. Here it gets values filled up with zeros, whose
part of the output is zeros too and is left out, so that latent attention (DeepSeek-V2) has a flash
form wherever others have one. Each way is one operation, named as the cost model names it.
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
    """Room for (batch, heads, seq, width) in which a token's heads lie side by side."""
    batch, heads, seq, _ = query.shape
    return query.new_empty(seq, batch, heads, width).permute(1, 2, 0, 3)


def filled_up(x: Tensor, width: int) -> Tensor:
    """``x`` with zeros behind its last dimension, up to ``width``."""
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
        found: tuple[Tensor, Tensor, Tensor] = _backward(grads[0], *ctx.saved_tensors)
        return found


def narrow_flash_on_cores(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention without a score matrix on cores.

    Args:
        query: (batch, heads, seq, width of a key).
        key: (batch, kv_heads, seq, width of a key).
        value: (batch, kv_heads, seq, a smaller width).

    Returns:
        (batch, heads, seq, width of a value).

    Raises:
        RuntimeError: the library has no flash kernel for these tensors.
    """
    out: Tensor = _NarrowFlash.apply(query, key, value)  # type: ignore[no-untyped-call]
    return out


__all__ = ["filled_up", "narrow_flash_on_cores", "token_first"]
