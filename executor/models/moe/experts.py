"""A mixture of experts: route, dispatch, compute, return, combine.

Runs what ``shardwright.costmodel.layers.moe`` prices, in the same order; no token is dropped.
Experts and outputs form one dimension, so that they shard by rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd import Function

from ....kernels.dense import activation
from ....kernels.moe.grouped_linear import DeferGradients, MakeGradients, grouped_linear
from ....spec.model.feed_forward import Mlp, Moe
from ..deferred_gradients import DeferredGradients, add_gradients
from ..mlp import mlp
from ..tensor_parallel import TensorParallel
from .dispatch import ExpertRanks, dispatch_rows, plan_dispatch, return_rows, row_offsets
from .routing import RoutedRows, combine, permute, route, sorted_rows

if TYPE_CHECKING:
    from ..block import Block


def mixture(block: Block, spec: Moe, x: Tensor) -> Tensor:
    """Mixture of experts of each token of ``x`` (seq, batch, hidden)."""
    logits = block.replicated(x, "router")
    weights, expert_ids = route(logits, spec)
    shared = _shared(block, spec, x) if spec.shared_ffn else None
    ranks = block.expert_ranks
    if not ranks.exchanges_rows:
        x, weights = _ForAllRanks.apply(x, block.tp), _ForAllRanks.apply(weights, block.tp)  # type: ignore[no-untyped-call]
    rows = sorted_rows(expert_ids, spec.experts)
    outputs = _through_experts(block, spec, permute(x, rows), rows, ranks)
    out = combine(outputs, weights, rows, x.shape)
    if not ranks.exchanges_rows:
        out = _SumOverRanks.apply(out, block.tp)  # type: ignore[no-untyped-call]
    return out if shared is None else _Added.apply(out, shared)  # type: ignore[no-untyped-call]


def _through_experts(
    block: Block, spec: Moe, x: Tensor, rows: RoutedRows, ranks: ExpertRanks
) -> Tensor:
    if not ranks.exchanges_rows or ranks.ep * ranks.etp == 1:
        return _experts(block, spec, x, rows.offsets)
    dispatch_plan = plan_dispatch(rows.offsets, x.shape[0], ranks)
    x = dispatch_rows(x, dispatch_plan, ranks, block.results)
    offsets = row_offsets(dispatch_plan.rows_per_expert, x.device)
    return return_rows(_experts(block, spec, x, offsets), dispatch_plan, ranks, block.results)


def _experts(block: Block, spec: Moe, x: Tensor, offsets: Tensor) -> Tensor:
    groups = offsets.shape[0]

    def through(rows: Tensor, *names: str) -> tuple[Tensor, ...]:
        weights = block.weights(*(f"experts_{name}" for name in names))
        expert_weights = [w.unflatten(0, (groups, -1)) for w in weights]  # type: ignore[no-untyped-call]
        return grouped_linear(
            block.kernels, rows, expert_weights, offsets, _deferrer(block.tp.deferred, weights)
        )

    projected = through(x, *(("gate", "up") if spec.gated else ("up",)))
    if spec.gated:
        inner = activation.swiglu(block.kernels, *projected)
    else:
        inner = activation.gelu(projected[0], tanh=spec.activation == "gelu_tanh")
    return through(inner, "down")[0]


def _deferrer(deferred: DeferredGradients | None, weights: list[Tensor]) -> DeferGradients | None:
    """Callback that defers expert weight gradients, (experts · out, in) each."""
    if deferred is None:
        return None

    def keep(gradients: MakeGradients) -> bool:
        if not deferred.is_deferring:
            return False
        deferred.add(lambda: add_gradients(weights, [g.flatten(0, 1) for g in gradients()]))
        return True

    return keep


def _shared(block: Block, spec: Moe, x: Tensor) -> Tensor:
    joint = Mlp(ffn=spec.shared_ffn, activation=spec.activation, bias=spec.bias)
    out = mlp(block, joint, x, prefix="shared_")
    if not spec.shared_gate:
        return out
    return out * block.replicated(x, "shared_expert_gate").sigmoid()


class _ForAllRanks(Function):
    """Input of tensor-parallel work; its gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TensorParallel) -> Tensor:
        ctx.tp = tp
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.tp.reduce(grads[0]), None


class _SumOverRanks(Function):
    """Sum of partial outputs over the tensor-parallel ranks.

    It keeps an empty tensor, so that a recomputed block repeats it like an MLP's sum.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TensorParallel) -> Tensor:
        ctx.save_for_backward(x.new_empty(0))
        return tp.reduce(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _Added(Function):
    """Sum of routed and shared experts, repeated by recomputation."""

    @staticmethod
    def forward(ctx: Any, routed: Tensor, shared: Tensor) -> Tensor:
        ctx.save_for_backward(routed.new_empty(0))
        return routed + shared

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], grads[0]


__all__ = ["mixture"]
