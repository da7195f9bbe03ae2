"""Biases of experts: one vector for each group of rows, added in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..fused import operation
from .grouped_linear import DeferGradients
from .grouped_matmul import filled_groups


def _fake_add(out: Tensor, bias: Tensor, offsets: Tensor, factor: float) -> None:
    """Writes to its first operand and makes nothing."""


@operation(
    "expert_bias_(Tensor(a!) out, Tensor bias, Tensor offsets, float factor) -> ()", _fake_add
)
def _add(out: Tensor, bias: Tensor, offsets: Tensor, factor: float) -> None:
    for group, rows in filled_groups(offsets, out.shape[0]):
        out[rows].add_(bias[group], alpha=factor)


def _fake_sum(grad: Tensor, offsets: Tensor) -> Tensor:
    return grad.new_empty(offsets.shape[0], grad.shape[1])


@operation("expert_bias_sum(Tensor grad, Tensor offsets) -> Tensor", _fake_sum)
def _sum(grad: Tensor, offsets: Tensor) -> Tensor:
    """(groups, n) sums of each group's (rows, n); zeros if empty."""
    out = torch.zeros(offsets.shape[0], grad.shape[1], dtype=grad.dtype, device=grad.device)
    for group, rows in filled_groups(offsets, grad.shape[0]):
        torch.sum(grad[rows], 0, out=out[group])
    return out


class _ExpertBias(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor,
        offsets: Tensor,
        factor: float,
        defer: DeferGradients | None,
    ) -> Tensor:
        ctx.mark_dirty(x)
        ctx.save_for_backward(offsets)
        ctx.defer = defer
        _add(x, bias, offsets, factor)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (offsets,), grad = ctx.saved_tensors, grads[0]
        if not ctx.needs_input_grad[1]:
            return grad, None, None, None, None

        def gradients() -> list[Tensor]:
            return [_sum(grad, offsets)]

        if ctx.defer is not None and ctx.defer(gradients):
            return grad, None, None, None, None
        return grad, *gradients(), None, None, None


def add_expert_bias(
    x: Tensor,
    bias: Tensor,
    offsets: Tensor,
    factor: float = 1.0,
    defer: DeferGradients | None = None,
) -> Tensor:
    """Each group's rows with its bias added, in place.

    Args:
        x: (rows, n), group after group.
        bias: (groups, n), in the type of ``x``.
        offsets: (groups,) int32: each group's end.
        factor: of the bias, where ranks sum partial outputs; its gradient is the whole one.
        defer: may take the biases' gradients for later.
    """
    out: Tensor = _ExpertBias.apply(x, bias, offsets, factor, defer)  # type: ignore[no-untyped-call]
    return out


__all__ = ["add_expert_bias"]
