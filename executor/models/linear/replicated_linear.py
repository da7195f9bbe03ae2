"""An unsplit projection; each rank runs it on its own tokens.

Runs what ``shardwright.costmodel.ops.linear.replicated_linear`` prices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Function

from ..deferred_gradients import DeferredGradients, add_gradients
from ..saved_results import NO_NAME, NamedResult
from ..tensor_parallel import affine


class _ReplicatedLinear(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        deferred: DeferredGradients | None,
        weight: Tensor,
        bias: Tensor | None,
        named: NamedResult,
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias, ctx.deferred = bias is not None, deferred
        ctx.parameters = () if deferred is None else (weight,) if bias is None else (weight, bias)
        (kept,) = named.kept()
        out = affine(x, weight, bias) if kept is None else kept
        named.keep(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        deferred: DeferredGradients | None = ctx.deferred
        grad = grads[0].flatten(0, 1)
        grad_x = grad.mm(weight).view(x.shape) if ctx.needs_input_grad[0] else None
        x = x.detach().flatten(0, 1)
        if deferred is not None and deferred.is_deferring:
            deferred.add(_weight_gradient(grad, x, ctx.parameters))
            return grad_x, None, None, None, None
        grad_bias = grad.sum(0) if ctx.has_bias else None
        return grad_x, None, grad.t().mm(x), grad_bias, None


def _weight_gradient(grad: Tensor, x: Tensor, parameters: tuple[Tensor, ...]) -> Callable[[], None]:
    """Deferred weight and bias gradients from (tokens, width) ``grad`` and ``x``."""

    def product() -> None:
        gradients = [grad.t().mm(x)]
        if len(parameters) > 1:
            gradients.append(grad.sum(0))
        add_gradients(parameters, gradients)

    return product


def replicated_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    deferred: DeferredGradients | None = None,
    named: NamedResult = NO_NAME,
) -> Tensor:
    """Apply a replicated weight and optional bias to ``x``.

    Args:
        x: (tokens, batch, in).
        weight: (out, in), whole on every rank.
        bias: (out,), whole on every rank; None for none.
        deferred: takes the weights' gradients where the schedule splits the backward.
        named: the result's name, and where it may be kept.
    """
    out: Tensor = _ReplicatedLinear.apply(x, deferred, weight, bias, named)  # type: ignore[no-untyped-call]
    return out


__all__ = ["replicated_linear"]
