"""A projection that no rank splits: each runs it on the tokens that it has.

Runs what :func:`shardwright.costmodel.ops_linear.whole_linear` prices.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function

from .layer import Slot
from .parallel import affine


class _WholeLinear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return affine(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grads[0].flatten(0, 1)
        grad_x = grad.mm(weight).view(x.shape) if ctx.needs_input_grad[0] else None
        grad_weight = grad.t().mm(x.flatten(0, 1))
        return grad_x, grad_weight, grad.sum(0) if ctx.has_bias else None


def whole_linear(x: Tensor, slot: Slot) -> Tensor:
    """``x`` (tokens, batch, in) through the weight (out, in), and the bias if any, of a slot."""
    out: Tensor = _WholeLinear.apply(x, slot.weight, slot.bias)  # type: ignore[no-untyped-call]
    return out


__all__ = ["whole_linear"]
