"""Experts' rows in chunks: each exchanged, computed and returned beside others.

The backward is written out: it has its own number of chunks. A chunk's gradients of weights are
made once its rows are on their way back. Runs what ``shardwright.costmodel.layers.expert_chunks``
prices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from ....kernels.dense import activation
from ....kernels.moe.grouped_linear import GroupedProducts, grouped_products
from ....spec.model.feed_forward import Moe
from ..deferred_gradients import add_gradients
from .chunk_plan import ChunkPlan, cut_again
from .chunk_way import ChunkedExperts, ChunkWay
from .dispatch import reordered, row_offsets

if TYPE_CHECKING:
    from ..block import Block


class _Experts:
    """Products of a rank's experts, by chunk, in both directions."""

    def __init__(self, block: Block, spec: Moe, weights: list[Tensor]) -> None:
        self.kernels, self.spec = block.kernels, spec
        self.weights = weights
        self.gradients: list[Tensor] = []

    def products(self, rows: Tensor) -> GroupedProducts:
        """The library's products of these rows."""
        return grouped_products(self.kernels, rows, self.weights[0])

    def forward(self, rows: Tensor, offsets: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Outputs of rows, and the projections to keep."""
        run = self.products(rows)
        projected = tuple(run.product(rows, w.transpose(1, 2), offsets) for w in self.weights[:-1])
        inner = self.activated(projected)
        return run.product(inner, self.weights[-1].transpose(1, 2), offsets), projected

    def activated(self, projected: tuple[Tensor, ...]) -> Tensor:
        """The activation of gate and up, or of up alone."""
        if self.spec.gated:
            return activation.swiglu(self.kernels, *projected)
        return activation.gelu(projected[0], tanh=self.spec.activation == "gelu_tanh")

    def backward(
        self, grad: Tensor, projected: tuple[Tensor, ...], offsets: Tensor
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Gradient of a chunk's rows; the activation again, and gradients of projections."""
        run = self.products(grad)
        grad_inner = run.product(grad, self.weights[-1], offsets)
        with torch.enable_grad():
            leaves = tuple(one.detach().requires_grad_() for one in projected)
            inner = self.activated(leaves)
        grads = torch.autograd.grad(inner, leaves, grad_inner)
        grad_rows = run.product(grads[0], self.weights[0], offsets)
        for one, weight in zip(grads[1:], self.weights[1:-1], strict=True):
            run.add_product(grad_rows, one, weight, offsets)
        return grad_rows, inner.detach(), grads

    def weight_gradients(
        self, rows: Tensor, inner: Tensor, grads: tuple[Tensor, ...], grad: Tensor, offsets: Tensor
    ) -> list[Tensor]:
        """Gradients of the weights from a chunk, (experts · out, in) each."""
        run = self.products(grad)
        made = [run.weight_gradient(one.t(), rows, offsets) for one in grads]
        made.append(run.weight_gradient(grad.t(), inner, offsets))
        return [one.flatten(0, 1) for one in made]

    def add(self, gradients: list[Tensor]) -> None:
        """Add a chunk's gradients to those before it."""
        if not self.gradients:
            self.gradients = gradients
            return
        for total, gradient in zip(self.gradients, gradients, strict=True):
            total.add_(gradient)


class _Chunked(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, block: Block, spec: Moe, run: ChunkedExperts, plan: ChunkPlan,
        *weights: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.settings = block, spec, run, plan
        ctx.parameters = weights if block.tp.deferred is not None else ()
        ctx.trains = any(ctx.needs_input_grad[5:])
        experts = _Experts(block, spec, _by_expert(weights, plan))
        way, out = ChunkWay(run, plan, run.forward), torch.empty_like(rows)
        outs, kept = way.cut(out), list[Tensor]()
        way.send(rows)
        for chunk in range(run.forward):
            at_experts = way.arrive(chunk)
            offsets = row_offsets(plan.rows_per_expert(chunk, run.forward), rows.device)
            made, projected = experts.forward(at_experts, offsets)
            kept += [at_experts, *projected]
            del at_experts, projected
            way.leave(made, chunk, outs[chunk])
            del made
        way.end()
        ctx.save_for_backward(*kept, *weights)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        block, spec, run, plan = ctx.settings
        columns = 3 if spec.gated else 2
        saved = list(ctx.saved_tensors)
        weights = saved[run.forward * columns :]
        kept = [tuple(saved[n * columns :][:columns]) for n in range(run.forward)]
        del saved
        grad, targets = grads[0], plan.targets()
        if run.forward != run.backward:
            grad = reordered(grad, *cut_again(targets, run.forward, run.backward))
            kept = _cut_kept(kept, plan, run)
        experts = _Experts(block, spec, _by_expert(weights, plan))
        grad_rows = _chunks_back(ctx, experts, grad, kept)
        if run.forward != run.backward:
            grad_rows = reordered(grad_rows, *cut_again(targets, run.backward, run.forward))
        given: list[Tensor | None] = [*experts.gradients] or [None] * len(weights)
        return (grad_rows, None, None, None, None, *given)


def _by_expert(weights: Sequence[Tensor], plan: ChunkPlan) -> list[Tensor]:
    """Weights of (experts · out, in) as (experts, out, in)."""
    return [w.detach().unflatten(0, (plan.local, -1)) for w in weights]  # type: ignore[no-untyped-call]


def _chunks_back(
    ctx: Any, experts: _Experts, grad: Tensor, kept: list[tuple[Tensor, ...]]
) -> Tensor:
    """Gradient of all rows; those of weights are added up, or put off."""
    block, _, run, plan = ctx.settings
    deferred = block.tp.deferred
    way, out = ChunkWay(run, plan, run.backward), torch.empty_like(grad)
    outs = way.cut(out)
    way.send(grad)
    way.open_window()
    for chunk in range(run.backward):
        arrived = way.arrive(chunk)
        offsets = row_offsets(plan.rows_per_expert(chunk, run.backward), grad.device)
        rows, *projected = kept.pop(0)
        made, inner, grads = experts.backward(arrived, tuple(projected), offsets)
        way.leave(made, chunk, outs[chunk])
        del made, projected
        parts = rows.detach(), inner, grads, arrived, offsets
        if not ctx.trains:
            pass
        elif deferred is not None and deferred.is_deferring:
            deferred.add(_later(experts, ctx.parameters, parts))
        else:
            experts.add(experts.weight_gradients(*parts))
        del parts, rows, inner, grads, arrived
    way.end()
    way.close_window()
    return out


def _later(experts: _Experts, parameters: tuple[Tensor, ...], parts: Any) -> Callable[[], None]:
    return lambda: add_gradients(parameters, experts.weight_gradients(*parts))


def _cut_kept(
    kept: list[tuple[Tensor, ...]], plan: ChunkPlan, run: ChunkedExperts
) -> list[tuple[Tensor, ...]]:
    """Kept results of all chunks, copied into those of the backward."""
    counts = [source[e] for e in range(plan.local) for source in plan.sources()]
    sizes, order = cut_again(counts, run.forward, run.backward)
    wholes = []
    for column in zip(*kept, strict=True):
        blocks: list[Tensor] = []
        left = list(sizes)
        each = len(sizes) // len(column)
        for one in column:
            blocks += one.split(left[:each])
            left = left[each:]
        wholes.append(torch.cat([blocks[number] for number in order]))
    ends = [sum(plan.rows_per_expert(chunk, run.backward)) for chunk in range(run.backward)]
    return list(zip(*(whole.split(ends) for whole in wholes), strict=True))  # type: ignore[no-untyped-call]


def through_chunked_experts(
    block: Block, spec: Moe, run: ChunkedExperts, rows: Tensor, plan: ChunkPlan
) -> Tensor:
    """Outputs of the experts of (rows, width), in the order of the forward's chunks."""
    names = (*(("gate",) if spec.gated else ()), "up", "down")
    weights = block.weights(*(f"experts_{name}" for name in names))
    out: Tensor = _Chunked.apply(rows, block, spec, run, plan, *weights)  # type: ignore[no-untyped-call]
    return out


__all__ = ["through_chunked_experts"]
