"""Frozen linear layers with low-rank adapters (Hu et al., arXiv:2106.09685, section 4).

y = W x + s · B A x, with A (rank, in), B (out, rank) and s = alpha / rank. W has no gradient, so
the layer keeps only its input (for A) and A x (for B). A column-split W splits B: A x is whole, its
gradient summed over the ranks. A row-split W splits A: A x is summed over the ranks, and each adds
its share of B A x before the output's sum. ``costmodel/ops/linear.py`` prices the same order. A
split backward still makes the gradients of A and B with the input's: r (in + out) of in · out of
the work, but until their pass they would hold as many bytes as W's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ...kernels.marks import mark
from ...spec.report.trace_marks import COMMUNICATE_TP
from .tensor_parallel import TensorParallel


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """This rank's parts of an adapter's two matrices, and its scale."""

    a: Tensor
    b: Tensor
    scale: float


def _flat(x: Tensor) -> Tensor:
    return x.flatten(0, 1)


def _scaled_product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """Compute ``scale · left · right`` as one product.

    beta = 0 ignores the added term.
    """
    empty = left.new_empty(1)
    return torch.addmm(empty, left, right, beta=0, alpha=scale)


def _sum_over(tp: TensorParallel, x: Tensor) -> Tensor:
    if tp.size > 1:
        with mark(COMMUNICATE_TP):
            dist.all_reduce(x, group=tp.group)
    return x


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    flat = _flat(x)
    product = flat.mm(weight.t()) if bias is None else torch.addmm(bias, flat, weight.t())
    return product.view(*x.shape[:2], weight.shape[0])


def _added(x: Tensor, out: Tensor, adapter: LoraAdapter, tp: TensorParallel | None) -> Tensor:
    """Add an adapter's product to ``out`` in place; return A x.

    ``tp``: the ranks that split A.
    """
    a_x = _flat(x).mm(adapter.a.t())
    share = adapter.scale
    if tp is not None:
        a_x, share = _sum_over(tp, a_x), share / tp.size
    out.view(-1, out.shape[-1]).add_(a_x.mm(adapter.b.t()), alpha=share)
    return a_x


def _gradients(
    x: Tensor,
    a_x: Tensor,
    grad: Tensor,
    grad_x: Tensor,
    adapter: LoraAdapter,
    tp: TensorParallel | None,
) -> tuple[Tensor, Tensor]:
    """Gradients of A and B; the adapter's share adds to ``grad_x``.

    Args:
        x: (tokens, in) input of A.
        a_x: (tokens, rank) A x.
        grad: (tokens, out) of the layer's output.
        grad_x: (tokens, in), changed in place.
        adapter: its matrices.
        tp: the ranks that split B and sum the gradient of A x.
    """
    grad_a_x = _scaled_product(grad, adapter.b, adapter.scale)
    grad_b = _scaled_product(grad.t(), a_x, adapter.scale)
    grad_x.addmm_(grad_a_x, adapter.a)  # this rank's part: the layer's input gradient is summed
    if tp is not None:
        grad_a_x = _sum_over(tp, grad_a_x)
    return grad_a_x.t().mm(x), grad_b


class _LoraColumnLinear(Function):
    """Column-parallel projections with adapters.

    Takes x, tp, scales (None: no adapter), weights, biases, and A and B in turn.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, tp: TensorParallel, scales: tuple[float | None, ...], *tensors: Tensor
    ) -> Any:
        count = len(scales)
        matrices = tensors[len(tensors) - 2 * sum(s is not None for s in scales) :]
        weights, biases = tensors[:count], tensors[count : len(tensors) - len(matrices)]
        optional_biases: list[Tensor | None] = [*biases] or [None] * count
        gathered = tp.gather_sequence(x)
        outs = tuple(_affine(gathered, w, b) for w, b in zip(weights, optional_biases, strict=True))
        del gathered
        adapters = _adapters(scales, matrices)
        a_xs: list[Tensor] = []
        if adapters:
            gathered = tp.gather_sequence(x)
            a_xs = [_added(gathered, outs[n], adapter, None) for n, adapter in adapters]
        ctx.save_for_backward(x if adapters else None, *a_xs, *weights, *matrices)
        ctx.tp, ctx.scales, ctx.biases = tp, scales, len(biases)
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        tp: TensorParallel = ctx.tp
        count, lora_count = len(ctx.scales), sum(s is not None for s in ctx.scales)
        x, *saved = ctx.saved_tensors
        a_xs, weights = saved[:lora_count], saved[lora_count : lora_count + count]
        flat = [_flat(g) for g in grads]
        grad_x = flat[0].mm(weights[0])
        for grad, weight in zip(flat[1:], weights[1:], strict=True):
            grad_x.addmm_(grad, weight)
        gradients: list[Tensor] = []
        if lora_count:
            gathered = _flat(tp.gather_sequence(x))
            adapters = _adapters(ctx.scales, saved[lora_count + count :])
            for (n, adapter), a_x in zip(adapters, a_xs, strict=True):
                gradients += _gradients(gathered, a_x, flat[n], grad_x, adapter, tp)
            del gathered
        grad_x = tp.reduce(grad_x.view(*grads[0].shape[:2], -1))
        return (grad_x, None, None, *[None] * (count + ctx.biases), *gradients)


def _adapters(
    scales: tuple[float | None, ...], matrices: tuple[Tensor, ...] | list[Tensor]
) -> list[tuple[int, LoraAdapter]]:
    scaled = [(n, scale) for n, scale in enumerate(scales) if scale is not None]
    return [
        (n, LoraAdapter(matrices[2 * k], matrices[2 * k + 1], scale))
        for k, (n, scale) in enumerate(scaled)
    ]


def lora_column_linear(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    adapters: list[LoraAdapter | None],
    tp: TensorParallel,
) -> tuple[Tensor, ...]:
    """:func:`tensor_parallel.column_linear` of frozen weights, some with adapters."""
    scales = tuple(None if adapter is None else adapter.scale for adapter in adapters)
    matrices = [m for adapter in adapters if adapter is not None for m in (adapter.a, adapter.b)]
    out: tuple[Tensor, ...] = _LoraColumnLinear.apply(  # type: ignore[no-untyped-call]
        x, tp, scales, *weights, *biases, *matrices
    )
    return out


class _LoraRowLinear(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tp: TensorParallel,
        scale: float | None,
        *matrices: Tensor,
    ) -> Tensor:
        out = _affine(x, weight, None)
        a_x = None
        if scale is not None:
            a_x = _added(x, out, LoraAdapter(matrices[0], matrices[1], scale), tp)
        ctx.save_for_backward(x if scale is not None else None, a_x, weight, *matrices)
        ctx.tp, ctx.scale, ctx.shape = tp, scale, x.shape
        out = tp.reduce(out)
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, a_x, weight, *matrices = ctx.saved_tensors
        grad = _flat(ctx.tp.gather_sequence(grads[0]))
        grad_x = grad.mm(weight)
        gradients: tuple[Tensor, ...] = ()
        if ctx.scale is not None:
            adapter = LoraAdapter(matrices[0], matrices[1], ctx.scale)
            gradients = _gradients(_flat(x), a_x, grad, grad_x, adapter, None)
        return (grad_x.view(ctx.shape), None, None, None, None, *gradients)


def lora_row_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, adapter: LoraAdapter | None, tp: TensorParallel
) -> Tensor:
    """:func:`tensor_parallel.row_linear` of a frozen weight with an optional adapter."""
    scale = None if adapter is None else adapter.scale
    matrices = () if adapter is None else (adapter.a, adapter.b)
    out: Tensor = _LoraRowLinear.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, tp, scale, *matrices
    )
    return out


class _BackwardBoundary(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        return None, None


def backward_boundary(x: Tensor) -> Tensor:
    """``x``, the output of frozen layers, as the end of the backward.

    A leaf that requires gradients would keep itself and its gradient alive until the backward.
    """
    out: Tensor = _BackwardBoundary.apply(  # type: ignore[no-untyped-call]
        x, torch.empty(0, device=x.device, requires_grad=True)
    )
    return out
