"""Grouped linear layers of experts: one weight per row group.

Several projections of the same rows go together, such as a gate and what it gates. Each use of a
weight is one operation: its product with the rows, its addition to their gradient, and its own
gradient, in the weight's layout; for that one the rows are kept, unless the weights are frozen.
Where the library has no single kernel, an operation loops over the groups.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from ...spec.errors import InputError
from ..dispatch import Dispatcher, Family, Variant
from ..fused import operation
from .grouped_matmul import (
    clear_empty,
    filled_groups,
    kernel_rows,
    kernel_stack,
    one_kernel_unsupported,
)


def _fake_product(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[2])


@operation("grouped_matmul(Tensor x, Tensor weight, Tensor offsets) -> Tensor", _fake_product)
def _product(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Product of each group's (rows, k) and its (k, n) of ``weight``."""
    out = _fake_product(x, weight, offsets)
    for group, rows in filled_groups(offsets, x.shape[0]):
        torch.mm(x[rows], weight[group], out=out[rows])
    return out


def _fake_add(out: Tensor, x: Tensor, weight: Tensor, offsets: Tensor) -> None:
    """Writes to its first operand and makes nothing."""


@operation(
    "grouped_matmul_(Tensor(a!) out, Tensor x, Tensor weight, Tensor offsets) -> ()", _fake_add
)
def _add_product(out: Tensor, x: Tensor, weight: Tensor, offsets: Tensor) -> None:
    for group, rows in filled_groups(offsets, x.shape[0]):
        out[rows].addmm_(x[rows], weight[group])


def _fake_gradient(grad: Tensor, x: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty(offsets.shape[0], grad.shape[0], x.shape[1])


@operation("grouped_matmul_wgrad(Tensor grad, Tensor x, Tensor offsets) -> Tensor", _fake_gradient)
def _weight_gradient(grad: Tensor, x: Tensor, offsets: Tensor) -> Tensor:
    """(groups, n, k) from (n, rows) and (rows, k); zeros if empty."""
    out = torch.zeros(offsets.shape[0], grad.shape[0], x.shape[1], dtype=x.dtype, device=x.device)
    for group, rows in filled_groups(offsets, x.shape[0]):
        torch.mm(grad[:, rows], x[rows], out=out[group])
    return out


def _one_product(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    return F.grouped_mm(kernel_rows(x), kernel_stack(weight), offs=offsets)


def _add_one_product(out: Tensor, x: Tensor, weight: Tensor, offsets: Tensor) -> None:
    out.add_(_one_product(x, weight, offsets))


def _one_gradient(grad: Tensor, x: Tensor, offsets: Tensor) -> Tensor:
    gradient = F.grouped_mm(kernel_rows(grad.t()).t(), kernel_rows(x), offs=offsets)
    clear_empty(gradient, offsets)
    return gradient


class GroupedProducts(NamedTuple):
    """A library's grouped products; ``add_product`` adds to its first operand."""

    product: Callable[..., Any]
    add_product: Callable[..., Any]
    weight_gradient: Callable[..., Any]


MakeGradients = Callable[[], list[Tensor]]
"""Makes the gradients of the weights, (groups, n, k) each, from what it holds."""
DeferGradients = Callable[[MakeGradients], bool]
"""Asked by a backward whether it takes them for later; if so, the backward gives none."""


class _GroupedLinear(Function):
    @staticmethod
    def forward(
        ctx: Any,
        run: GroupedProducts,
        x: Tensor,
        offsets: Tensor,
        defer: DeferGradients | None,
        *weights: Tensor,
    ) -> Any:
        ctx.trains = any(ctx.needs_input_grad[4:])
        ctx.save_for_backward(x if ctx.trains else None, offsets, *weights)
        ctx.run, ctx.defer = run, defer
        return tuple(run.product(x, weight.transpose(1, 2), offsets) for weight in weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, offsets, *weights = ctx.saved_tensors
        run: GroupedProducts = ctx.run
        pairs = list(zip(grads, weights, strict=True))
        grad_x = run.product(*pairs[0], offsets)
        for grad, weight in pairs[1:]:
            run.add_product(grad_x, grad, weight, offsets)
        if not ctx.trains:
            return (None, grad_x, None, None, *(None for _ in weights))
        x = x.detach()  # or what is kept would hold the graph that it came from

        def gradients() -> list[Tensor]:
            return [run.weight_gradient(grad.t(), x, offsets) for grad in grads]

        if ctx.defer is not None and ctx.defer(gradients):
            return (None, grad_x, None, None, *(None for _ in weights))
        return (None, grad_x, None, None, *gradients())


_ONE_KERNEL = GroupedProducts(_one_product, _add_one_product, _one_gradient)
_LOOP = GroupedProducts(_product, _add_product, _weight_gradient)

_in_one_kernel: Callable[..., Any] = partial(_GroupedLinear.apply, _ONE_KERNEL)
_in_a_loop: Callable[..., Any] = partial(_GroupedLinear.apply, _LOOP)
"""Operands without elements have no strides that the single kernel takes."""

GROUPED_LINEAR = Family(
    "grouped_linear",
    (
        Variant("one_kernel", _in_one_kernel, one_kernel_unsupported),
        Variant("loop", _in_a_loop, fused=False),
    ),
)
"""Decided by the first weight, (groups, n, k)."""


def grouped_linear(
    kernels: Dispatcher,
    x: Tensor,
    weights: list[Tensor],
    offsets: Tensor,
    defer: DeferGradients | None = None,
) -> tuple[Tensor, ...]:
    """Projections of every group's rows by its part of each weight.

    Args:
        kernels: of the run.
        x: (rows, k), group after group.
        weights: each (groups, n, k), in the type of ``x``.
        offsets: (groups,) int32 on the same device: each group's end, the last at ``rows``; a group
            may be empty.
        defer: may take the weights' gradients for later.

    Returns:
        One (rows, n) per weight.

    Raises:
        InputError: shapes, types or offsets do not fit together.
    """
    for weight in weights:
        if x.dim() != 2 or x.shape[1] != weight.shape[2] or x.dtype != weight.dtype:
            kind = str(weight.dtype).removeprefix("torch.")
            description = f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
            raise InputError("x", description, f"{kind} (rows, {weight.shape[2]})")
    if offsets.shape != weights[0].shape[:1] or offsets.dtype != torch.int32:
        description = f"{str(offsets.dtype).removeprefix('torch.')} {tuple(offsets.shape)}"
        raise InputError("offsets", description, f"int32 ({weights[0].shape[0]},)")
    run = kernels.pick(GROUPED_LINEAR, weights[0]) if x.numel() else _in_a_loop
    out: tuple[Tensor, ...] = run(x, offsets, defer, *weights)
    return out


def grouped_products(kernels: Dispatcher, x: Tensor, weight: Tensor) -> GroupedProducts:
    """The products that :func:`grouped_linear` runs, for a backward written by hand.

    Args:
        kernels: of the run.
        x: (rows, k).
        weight: (groups, n, k).
    """
    run = kernels.pick(GROUPED_LINEAR, weight) if x.numel() else _in_a_loop
    return _ONE_KERNEL if run is _in_one_kernel else _LOOP


__all__ = [
    "GROUPED_LINEAR",
    "DeferGradients",
    "GroupedProducts",
    "MakeGradients",
    "grouped_linear",
    "grouped_products",
]
