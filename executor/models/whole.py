"""A projection that no rank splits: each runs it on the tokens that it has.

Of a frozen one nothing but its weight is kept, and only the gradient of its input is made.
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
        ctx.trained = weight.requires_grad
        ctx.save_for_backward(x if ctx.trained else None, weight)
        ctx.has_bias, ctx.lead = bias is not None, x.shape[:-1]
        return affine(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grads[0].flatten(0, 1)
        grad_x = grad.mm(weight).view(*ctx.lead, -1) if ctx.needs_input_grad[0] else None
        if not ctx.trained:
            return grad_x, None, None
        grad_weight = grad.t().mm(x.flatten(0, 1))
        return grad_x, grad_weight, grad.sum(0) if ctx.has_bias else None


def whole_linear(x: Tensor, slot: Slot) -> Tensor:
    """``x`` (tokens, batch, in) through the weight (out, in), and the bias if any, of a slot."""
    out: Tensor = _WholeLinear.apply(x, slot.weight, slot.bias)  # type: ignore[no-untyped-call]
    return out


__all__ = ["whole_linear"]
