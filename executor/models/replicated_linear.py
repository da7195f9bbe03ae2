"""A projection that no rank splits: each runs it on the tokens that it has.

Runs what :func:`shardwright.costmodel.ops.linear.whole_linear` prices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Function

from .deferred_gradients import WeightWork, add_gradients
from .tensor_parallel import affine


class _WholeLinear(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, later: WeightWork | None, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias, ctx.later = bias is not None, later
        ctx.parameters = () if later is None else (weight,) if bias is None else (weight, bias)
        return affine(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        later: WeightWork | None = ctx.later
        grad = grads[0].flatten(0, 1)
        grad_x = grad.mm(weight).view(x.shape) if ctx.needs_input_grad[0] else None
        x = x.detach().flatten(0, 1)
        if later is not None and later.waits:
            later.add(_product(grad, x, ctx.parameters))
            return grad_x, None, None, None
        grad_bias = grad.sum(0) if ctx.has_bias else None
        return grad_x, None, grad.t().mm(x), grad_bias


def _product(grad: Tensor, x: Tensor, parameters: tuple[Tensor, ...]) -> Callable[[], None]:
    """Later, the gradients of a weight and perhaps its bias; (tokens, width) both."""

    def product() -> None:
        found = [grad.t().mm(x)]
        if len(parameters) > 1:
            found.append(grad.sum(0))
        add_gradients(parameters, found)

    return product


def whole_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, later: WeightWork | None = None
) -> Tensor:
    """``x`` (tokens, batch, in) through a weight (out, in) and perhaps a bias (out,).

    Args:
        x: the input.
        weight: whole on every rank.
        bias: the same; None for none.
        later: takes the weights' gradients where the schedule splits the backward.
    """
    out: Tensor = _WholeLinear.apply(x, later, weight, bias)  # type: ignore[no-untyped-call]
    return out


__all__ = ["whole_linear"]
