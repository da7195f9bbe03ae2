"""MLP activations: GELU, ReLU, and gated units that keep only inputs.

SwiGLU and GeGLU (Shazeer, 2020) are ``silu(gate) · up`` and ``gelu(gate) · up``; the backward pass
recomputes the activated gate. liger-kernel does each pass in one kernel and writes the gradients
over the inputs, so these must not be shared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from ..dispatch import Dispatcher, Family, Variant
from ..fused import liger_rows_unsupported, operation


class _EagerSwiGlu(Function):
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


class _EagerGeGlu(Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.gelu(gate, approximate="tanh").mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        grad = grads[0]
        grad_up = F.gelu(gate, approximate="tanh").mul_(grad)
        grad_gelu = grad * up
        return torch.ops.aten.gelu_backward(grad_gelu, gate, approximate="tanh"), grad_up


def _fake_forward(gate: Tensor, up: Tensor) -> Tensor:
    return torch.empty_like(gate)


def _fake_backward(grad: Tensor, gate: Tensor, up: Tensor) -> None:
    """Writes to its operands and makes nothing."""


@operation("swiglu(Tensor gate, Tensor up) -> Tensor", _fake_forward)
def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    from liger_kernel.ops.swiglu import swiglu_forward

    out: Tensor = swiglu_forward(gate, up)[2]
    return out


@operation("swiglu_backward_(Tensor grad, Tensor(a!) gate, Tensor(b!) up) -> ()", _fake_backward)
def _swiglu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> None:
    from liger_kernel.ops.swiglu import swiglu_backward

    width = gate.shape[-1]
    swiglu_backward(gate.view(-1, width), up.view(-1, width), grad)


@operation("geglu(Tensor gate, Tensor up) -> Tensor", _fake_forward)
def _geglu(gate: Tensor, up: Tensor) -> Tensor:
    from liger_kernel.ops.geglu import geglu_forward

    out: Tensor = geglu_forward(gate, up)[2]
    return out


@operation("geglu_backward_(Tensor grad, Tensor(a!) gate, Tensor(b!) up) -> ()", _fake_backward)
def _geglu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> None:
    from liger_kernel.ops.geglu import geglu_backward

    width = gate.shape[-1]
    geglu_backward(gate.view(-1, width), up.view(-1, width), grad)


class _FusedGated(Function):
    """Gated unit as two operations; gradients overwrite the inputs."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, there: Any, back: Any) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        ctx.back, ctx.is_spent = back, False
        out: Tensor = there(gate, up)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        gate, up = ctx.saved_tensors
        if ctx.is_spent:
            raise RuntimeError("gradients took the inputs' place: there is one backward pass")
        ctx.is_spent = True
        ctx.back(grads[0].contiguous(), gate, up)
        return gate, up, None, None


def _fused_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    out: Tensor = _FusedGated.apply(  # type: ignore[no-untyped-call]
        gate, up, _swiglu, _swiglu_backward
    )
    return out


def _fused_geglu(gate: Tensor, up: Tensor) -> Tensor:
    out: Tensor = _FusedGated.apply(  # type: ignore[no-untyped-call]
        gate, up, _geglu, _geglu_backward
    )
    return out


SWIGLU = Family(
    "swiglu",
    (
        Variant("liger", _fused_swiglu, liger_rows_unsupported),
        Variant("eager", _EagerSwiGlu.apply, fused=False),
    ),
)
"""Decided by the gate, (..., width)."""
GEGLU = Family(
    "geglu",
    (
        Variant("liger", _fused_geglu, liger_rows_unsupported),
        Variant("eager", _EagerGeGlu.apply, fused=False),
    ),
)
"""Decided by the gate, (..., width)."""


def swiglu(kernels: Dispatcher, gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) · up`` on equal shapes; the backward pass may overwrite both."""
    out: Tensor = kernels.pick(SWIGLU, gate)(gate, up)
    return out


def geglu(kernels: Dispatcher, gate: Tensor, up: Tensor) -> Tensor:
    """``gelu(gate) · up`` with the tanh approximation; as :func:`swiglu`."""
    out: Tensor = kernels.pick(GEGLU, gate)(gate, up)
    return out


def gelu(x: Tensor, tanh: bool) -> Tensor:
    """GELU (Hendrycks and Gimpel, 2016), exact or with the tanh approximation."""
    return F.gelu(x, approximate="tanh" if tanh else "none")


def relu(x: Tensor) -> Tensor:
    """ReLU."""
    return F.relu(x)


def swiglu_reference(gate: Tensor, up: Tensor) -> Tensor:
    """Float64 reference, differentiable by autograd."""
    g = gate.double()
    return g / (1 + torch.exp(-g)) * up.double()


def geglu_reference(gate: Tensor, up: Tensor) -> Tensor:
    """Float64 reference of the tanh approximation, differentiable by autograd."""
    g = gate.double()
    inner = (2 / torch.pi) ** 0.5 * (g + 0.044715 * g**3)
    return 0.5 * g * (1 + torch.tanh(inner)) * up.double()
