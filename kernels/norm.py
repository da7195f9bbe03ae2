"""Layer norm and RMS norm over the last axis, forward and backward.

Layer norm (Ba et al., 2016) is the library's fused kernel. RMS norm (Zhang and Sennrich, 2019)
has no fused CPU kernel in torch, so it is written in as few passes as eager operations allow;
sums are taken in float32 whatever the input type.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class _RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        inverse_rms = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse_rms)
        out: Tensor = x * inverse_rms
        return out.mul_(weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse_rms = ctx.saved_tensors
        grad = grads[0]
        normal = x * inverse_rms
        product = grad * normal
        grad_weight = product.flatten(0, -2).sum(0)
        torch.mul(product, weight, out=product)
        along = product.mean(-1, keepdim=True)
        del product
        grad_x = grad * weight if grad.dtype == torch.float32 else grad.float().mul_(weight)
        grad_x.addcmul_(normal, along, value=-1).mul_(inverse_rms)
        return grad_x.to(x.dtype), grad_weight.to(weight.dtype), None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / rms(x) · weight``.

    Args:
        x: (..., width) activations.
        weight: (width,) scale.
        eps: added to the mean square.
    """
    out: Tensor = _RmsNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return out


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The definition, in float64, differentiable by autograd."""
    y = x.double()
    return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * weight.double()


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """``(x - mean) / std · weight + bias`` over the last axis; shapes as in :func:`rms_norm`."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps)


__all__ = ["layer_norm", "rms_norm", "rms_norm_reference"]
