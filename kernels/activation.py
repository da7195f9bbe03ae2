"""MLP activations: GELU (library kernel) and SwiGLU, which keeps only its two inputs.

SwiGLU (Shazeer, 2020) is ``silu(gate) · up``; the backward pass computes ``silu(gate)`` again
rather than keep it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F


class _SwiGlu(Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        grad = grads[0]
        grad_up = F.silu(gate).mul_(grad)
        grad_silu = grad * up
        return torch.ops.aten.silu_backward(grad_silu, gate), grad_up


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) · up``, elementwise on equal shapes."""
    out: Tensor = _SwiGlu.apply(gate, up)  # type: ignore[no-untyped-call]
    return out


def gelu(x: Tensor, tanh: bool) -> Tensor:
    """GELU (Hendrycks and Gimpel, 2016), exact or with the tanh approximation."""
    return F.gelu(x, approximate="tanh" if tanh else "none")
