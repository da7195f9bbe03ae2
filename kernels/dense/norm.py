"""Layer norm and RMS norm over the last axis, forward and backward.

Layer norm (Ba et al., 2016) is the library's fused kernel. RMS norm (Zhang and Sennrich, 2019) is
one kernel per pass where liger-kernel runs, accumulating in float32, and else as few passes as
eager operations allow.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..dispatch import Dispatcher, Family, Variant
from ..fused import liger_rows_unsupported, operation


class _EagerRmsNorm(Function):
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


def _fake_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[:-1].numel(), dtype=torch.float32)


def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, inverse_rms: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


@operation("rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)", _fake_forward)
def _fused_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    from liger_kernel.ops.rms_norm import rms_norm_forward

    out, _, inverse_rms, *_ = rms_norm_forward(x, weight, eps, 0.0, "gemma", None)
    return out, inverse_rms


@operation(
    "rms_norm_backward(Tensor grad, Tensor x, Tensor weight, Tensor inverse_rms)"
    " -> (Tensor, Tensor)",
    _fake_backward,
)
def _fused_backward(
    grad: Tensor, x: Tensor, weight: Tensor, inverse_rms: Tensor
) -> tuple[Tensor, Tensor]:
    from liger_kernel.ops.rms_norm import _str_to_casting_mode, rms_norm_backward
    from liger_kernel.ops.utils import calculate_settings

    mode = _str_to_casting_mode["gemma"]
    rows = x.view(-1, x.shape[-1])
    block, warps = calculate_settings(x.shape[-1])
    return rms_norm_backward(  # type: ignore[no-any-return]
        grad, rows, weight, inverse_rms, 0.0, mode, block, warps, False, None
    )


class _FusedRmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        out, inverse_rms = _fused_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, inverse_rms)
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        return *_fused_backward(grads[0].contiguous(), *ctx.saved_tensors), None


RMS_NORM = Family(
    "rms_norm",
    (
        Variant("liger", _FusedRmsNorm.apply, liger_rows_unsupported),
        Variant("eager", _EagerRmsNorm.apply, fused=False),
    ),
)
"""Decided by the activations, (..., width)."""


def rms_norm(kernels: Dispatcher, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / rms(x) · weight``.

    Args:
        kernels: of the run.
        x: (..., width) activations.
        weight: (width,) scale.
        eps: added to the mean square.
    """
    out: Tensor = kernels.pick(RMS_NORM, x)(x, weight, eps)
    return out


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    y = x.double()
    return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * weight.double()


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """``(x - mean) / std · weight + bias``; shapes as :func:`rms_norm`."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    y = x.double()
    centred = y - y.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + eps) * weight.double() + bias.double()


__all__ = ["RMS_NORM", "layer_norm", "layer_norm_reference", "rms_norm", "rms_norm_reference"]
