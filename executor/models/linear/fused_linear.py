"""Tensor-parallel linear layers, each one operation with its collective.

The operations are given: torch's over symmetric memory, or its definitions of them in plain
collectives. Going forward a column-split product gathers its rows, a row-split one scatters its
sum; going back it is the other way around. What no fused operation does is a whole one: gradients
of weights, and the gather of a column-split product's input for them, beside the fused product.
Several projections of one input have one gradient, and several of one sum one result, so their
operands are joined for one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ....kernels.marks import mark
from ....spec.report.trace_marks import COMMUNICATE_TP
from ...torch_compat import FusedProducts, all_gather_single
from ..saved_results import NamedResult
from ..tensor_parallel import (
    TensorParallel,
    bias_sums,
    column_gradients,
    row_gradients,
    row_tensors,
    weights_and_biases,
)
from .overlapped_linear import OverlappedLinear


@dataclass(slots=True)
class _Fused:
    """Operations, and the process group of their collectives, set before the first step."""

    operations: FusedProducts
    group: dist.ProcessGroup | None = None

    @property
    def name(self) -> str:
        if self.group is None:
            raise RuntimeError("fused products before their group is made")
        return self.group.group_name

    def gather_product(
        self, x: Tensor, weights: list[Tensor], rows: bool = False
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Gather (seq, batch, k) and multiply; weights are (k, n)."""
        with mark(COMMUNICATE_TP):
            return self.operations.gather_product(x.contiguous(), weights, self.name, rows)

    def product_scatter(self, x: Tensor, weight: Tensor) -> Tensor:
        """Multiply (seq, batch, k) by (k, n) and keep this rank's part of the sum."""
        with mark(COMMUNICATE_TP):
            return self.operations.product_scatter(x.contiguous(), weight, self.name)

    def begin_gather(self, x: Tensor, ranks: int) -> tuple[Tensor, Any]:
        """Begin to gather (seq, batch, k) of each rank: all rows, and the wait for them."""
        whole = x.new_empty(x.shape[0] * ranks, *x.shape[1:])
        with mark(COMMUNICATE_TP):
            return whole, all_gather_single(whole, x.contiguous(), group=self.group, async_op=True)


class _FusedColumn(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        tp: TensorParallel,
        fused: _Fused,
        named: NamedResult,
        *parameters: Tensor | None,
    ) -> Any:
        weights, biases = weights_and_biases(parameters)
        ctx.save_for_backward(x, *weights)
        ctx.tp, ctx.fused = tp, fused
        ctx.biased = [bias is not None for bias in biases]
        ctx.parameters = parameters if tp.deferred is not None else ()
        outs = list(named.kept() or [None] * len(weights))
        missing = [n for n, out in enumerate(outs) if out is None]
        if missing:
            _, made = fused.gather_product(x, [weights[n].t() for n in missing])
            for number, out in zip(missing, made, strict=True):
                bias = biases[number]
                outs[number] = out if bias is None else out.add_(bias)
        results = tuple(out for out in outs if out is not None)
        named.keep(*results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        tp, fused = ctx.tp, ctx.fused
        gathered, work = fused.begin_gather(x.detach(), tp.size)
        joined = (torch.cat(grads, dim=-1), torch.cat(weights)) if len(grads) > 1 else None
        grad, weight = joined or (grads[0], weights[0])
        grad_x = fused.product_scatter(grad, weight)
        del joined, grad, weight
        with mark(COMMUNICATE_TP):
            work.wait()
        flat, rows = [g.flatten(0, 1) for g in grads], gathered.flatten(0, 1)
        if tp.deferred is not None and tp.deferred.is_deferring:
            tp.deferred.add(column_gradients(flat, rows, ctx.parameters))
            return (grad_x, None, None, None, *(None for _ in ctx.parameters))
        grad_weights = [g.t().mm(rows) for g in flat]
        grad_biases = bias_sums(flat, ctx.biased)
        return (grad_x, None, None, None, *grad_weights, *grad_biases)


class _FusedRow(Function):
    @staticmethod
    def forward(
        ctx: Any,
        tp: TensorParallel,
        fused: _Fused,
        named: NamedResult,
        count: int,
        *tensors: Tensor | None,
    ) -> Tensor:
        xs, weights, biases = row_tensors(count, tensors)
        ctx.save_for_backward(*xs, *weights)
        ctx.tp, ctx.fused = tp, fused
        ctx.biased = [bias is not None for bias in biases]
        ctx.weights = weights if tp.deferred is not None else ()
        (kept,) = named.kept()
        if kept is not None:
            return kept
        joined = (torch.cat(xs, dim=-1), torch.cat(weights, dim=1)) if count > 1 else None
        x, weight = joined or (xs[0], weights[0])
        out = fused.product_scatter(x, weight.t())
        for bias in biases:
            out = out if bias is None else out.add_(bias)
        named.keep(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        count, tp = len(ctx.biased), ctx.tp
        saved = ctx.saved_tensors  # unpacked once
        xs, weights = saved[:count], saved[count:]
        grad_biases = bias_sums([grads[0].flatten(0, 1)] * count, ctx.biased)
        whole, grad_xs = ctx.fused.gather_product(grads[0], [*weights], rows=True)
        if whole is None:
            raise RuntimeError("the fused product did not return the rows that it gathered")
        grad = whole.flatten(0, 1)
        if tp.deferred is not None and tp.deferred.is_deferring:
            tp.deferred.add(row_gradients(grad, [x.detach() for x in xs], ctx.weights))
            return (None,) * 4 + (*grad_xs, *(None for _ in xs), *grad_biases)
        grad_weights = [grad.t().mm(x.flatten(0, 1)) for x in xs]
        return (None,) * 4 + (*grad_xs, *grad_weights, *grad_biases)


class FusedLinear(OverlappedLinear):
    """Column- and row-split products fused with their collectives."""

    def __init__(self, operations: FusedProducts) -> None:
        super().__init__(_Fused(operations), _FusedColumn, _FusedRow)


__all__ = ["FusedLinear"]
