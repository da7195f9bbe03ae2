"""Frozen linear layers with low-rank adapters beside them (Hu et al., arXiv:2106.09685, section 4).

Beside y = W x stands s · B A x, with A (rank, in), B (out, rank) and s = alpha / rank. W has no
gradient, so the layer keeps its input for the gradient of A, and A x for that of B, and nothing
else. Where tensor parallelism splits W along its outputs B is split so too: A x is whole, and its
gradient is a sum over the ranks. Where W is split along its inputs so is A: A x is a sum over the
ranks, and each rank adds its share of B A x to what is summed after it. The same work in the same
order stands in ``costmodel/ops/linear.py``.

Where a schedule splits the backward, the gradients of A and B come with the input's all the same:
they are r (in + out) of in · out of the work, but would hold as many bytes as W's would until
their pass.
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
    """The two matrices beside one weight, this rank's parts, and what they are scaled by."""

    a: Tensor
    b: Tensor
    scale: float


def _flat(x: Tensor) -> Tensor:
    """(seq, batch, width) as (tokens, width)."""
    return x.flatten(0, 1)


def _scaled_product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """``scale · left · right`` as one product; the number that it is added to counts nothing."""
    nothing = left.new_empty(1)
    return torch.addmm(nothing, left, right, beta=0, alpha=scale)


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
    """Add an adapter's part to ``out`` in place; gives A x. ``tp``: the ranks that split A."""
    inner = _flat(x).mm(adapter.a.t())
    share = adapter.scale
    if tp is not None:
        inner, share = _sum_over(tp, inner), share / tp.size
    out.view(-1, out.shape[-1]).add_(inner.mm(adapter.b.t()), alpha=share)
    return inner


def _gradients(
    x: Tensor,
    inner: Tensor,
    grad: Tensor,
    grad_x: Tensor,
    adapter: LoraAdapter,
    tp: TensorParallel | None,
) -> tuple[Tensor, Tensor]:
    """Gradients of A and B; the adapter's part is added to ``grad_x`` in place.

    Args:
        x: (tokens, in) what A was applied to.
        inner: (tokens, rank) A x.
        grad: (tokens, out) of the layer's output.
        grad_x: (tokens, in).
        adapter: its matrices.
        tp: the ranks that split B, of whose parts the gradient of A x is the sum.
    """
    grad_inner = _scaled_product(grad, adapter.b, adapter.scale)
    grad_b = _scaled_product(grad.t(), inner, adapter.scale)
    grad_x.addmm_(grad_inner, adapter.a)  # this rank's part: the layer's input gradient is summed
    if tp is not None:
        grad_inner = _sum_over(tp, grad_inner)
    return grad_inner.t().mm(x), grad_b


class _LoraColumnLinear(Function):
    """Takes x, tp, scales (None: no adapter), weights, biases, and A and B in turn."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, tp: TensorParallel, scales: tuple[float | None, ...], *rest: Tensor
    ) -> Any:
        count = len(scales)
        matrices = rest[len(rest) - 2 * sum(s is not None for s in scales) :]
        weights, biases = rest[:count], rest[count : len(rest) - len(matrices)]
        present: list[Tensor | None] = [*biases] or [None] * count
        whole = tp.gather_sequence(x)
        outs = tuple(_affine(whole, w, b) for w, b in zip(weights, present, strict=True))
        del whole
        adapters = _adapters(scales, matrices)
        inners: list[Tensor] = []
        if adapters:
            whole = tp.gather_sequence(x)
            inners = [_added(whole, outs[n], adapter, None) for n, adapter in adapters]
        ctx.save_for_backward(x if adapters else None, *inners, *weights, *matrices)
        ctx.tp, ctx.scales, ctx.biases = tp, scales, len(biases)
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        tp: TensorParallel = ctx.tp
        count, beside = len(ctx.scales), sum(s is not None for s in ctx.scales)
        x, *saved = ctx.saved_tensors
        inners, weights = saved[:beside], saved[beside : beside + count]
        flat = [_flat(g) for g in grads]
        grad_x = flat[0].mm(weights[0])
        for grad, weight in zip(flat[1:], weights[1:], strict=True):
            grad_x.addmm_(grad, weight)
        found: list[Tensor] = []
        if beside:
            whole = _flat(tp.gather_sequence(x))
            adapters = _adapters(ctx.scales, saved[beside + count :])
            for (n, adapter), inner in zip(adapters, inners, strict=True):
                found += _gradients(whole, inner, flat[n], grad_x, adapter, tp)
            del whole
        grad_x = tp.reduce(grad_x.view(*grads[0].shape[:2], -1))
        return (grad_x, None, None, *[None] * (count + ctx.biases), *found)


def _adapters(
    scales: tuple[float | None, ...], matrices: tuple[Tensor, ...] | list[Tensor]
) -> list[tuple[int, LoraAdapter]]:
    """The adapters with the number of the weight that each stands beside."""
    having = [(n, scale) for n, scale in enumerate(scales) if scale is not None]
    return [
        (n, LoraAdapter(matrices[2 * k], matrices[2 * k + 1], scale))
        for k, (n, scale) in enumerate(having)
    ]


def lora_column_linear(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    adapters: list[LoraAdapter | None],
    tp: TensorParallel,
) -> tuple[Tensor, ...]:
    """:func:`tensor_parallel.column_linear` of frozen weights, some of them with adapters."""
    scales = tuple(None if each is None else each.scale for each in adapters)
    matrices = [m for each in adapters if each is not None for m in (each.a, each.b)]
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
        inner = None
        if scale is not None:
            inner = _added(x, out, LoraAdapter(matrices[0], matrices[1], scale), tp)
        ctx.save_for_backward(x if scale is not None else None, inner, weight, *matrices)
        ctx.tp, ctx.scale, ctx.shape = tp, scale, x.shape
        out = tp.reduce(out)
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, inner, weight, *matrices = ctx.saved_tensors
        grad = _flat(ctx.tp.gather_sequence(grads[0]))
        grad_x = grad.mm(weight)
        found: tuple[Tensor, ...] = ()
        if ctx.scale is not None:
            adapter = LoraAdapter(matrices[0], matrices[1], ctx.scale)
            found = _gradients(_flat(x), inner, grad, grad_x, adapter, None)
        return (grad_x.view(ctx.shape), None, None, None, None, *found)


def lora_row_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, adapter: LoraAdapter | None, tp: TensorParallel
) -> Tensor:
    """:func:`tensor_parallel.row_linear` of a frozen weight that may have an adapter."""
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
    """``x``, the output of frozen layers alone, as what gradients go back to and end at.

    A leaf that asks for gradients would be held, and its gradient too, until the backward.
    """
    out: Tensor = _BackwardBoundary.apply(  # type: ignore[no-untyped-call]
        x, torch.empty(0, device=x.device, requires_grad=True)
    )
    return out
