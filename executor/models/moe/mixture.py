"""A mixture of experts: route, dispatch, compute, return, combine.

Runs what ``shardwright.costmodel.layers.moe`` prices, in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd import Function

from ....spec.model.feed_forward import Mlp, Moe, expert_capacity
from ..mlp import mlp
from ..tensor_parallel import TensorParallel
from .chunks import through_chunked_experts
from .combine import combine
from .dispatch import dispatch_rows, even_dispatch, plan_dispatch, return_rows, row_offsets
from .experts import experts
from .gate import route, router_logits, scores_of
from .order import chosen_rows, even_offsets, limited_rows, permute, sorted_rows
from .router import jittered, required
from .soft import mix_slots, mix_tokens

if TYPE_CHECKING:
    from ..block import Block


def mixture(block: Block, spec: Moe, x: Tensor) -> Tensor:
    """Mixture of experts of each token of ``x`` (seq, batch, hidden)."""
    balance = spec.balance
    if balance is not None and balance.jitter and balance.jitters == "input":
        x = jittered(x, balance, required(block.router_state, spec))
    logits = router_logits(block, spec, x)
    routed = _mixed if spec.gate == "soft" else _routed
    shared = _shared(block, spec, x) if spec.shared_ffn else None
    if spec.latent is not None:
        x = block.replicated(x, "latent_down")
    out = routed(block, spec, x, logits)
    if not block.expert_ranks.exchanges_rows:
        out = _SumOverRanks.apply(out, block.tp)  # type: ignore[no-untyped-call]
    if spec.latent is not None:
        out = block.replicated(out, "latent_up")
    return out if shared is None else _Added.apply(out, shared)  # type: ignore[no-untyped-call]


def _routed(block: Block, spec: Moe, x: Tensor, logits: Tensor) -> Tensor:
    """Weighted sum of the rows of each token."""
    ranks, tokens = block.expert_ranks, x.shape[0] * x.shape[1]
    capacity = expert_capacity(spec, tokens) if spec.fills_rows else None
    if spec.gate == "expert_choice":
        weights = scores_of(logits)
        rows = chosen_rows(weights, spec, expert_capacity(spec, tokens))
    else:
        weights, expert_ids = route(logits, spec, block.router_state)
        if capacity is None:
            rows = sorted_rows(expert_ids, spec.experts)
        else:
            rows = limited_rows(expert_ids, weights, spec, capacity)
    if not ranks.exchanges_rows:
        x, weights = _ForAllRanks.apply(x, block.tp), _ForAllRanks.apply(weights, block.tp)  # type: ignore[no-untyped-call]
    _tell(block, rows.offsets)
    if (chunked := block.chunked_experts) is not None:
        plan, rows = chunked.plan(rows, spec.topk, ranks)
        outputs = through_chunked_experts(block, spec, chunked, permute(x, rows), plan)
    else:
        outputs = _through_experts(block, spec, permute(x, rows), rows.offsets, capacity)
    return combine(outputs, weights, rows, x.shape)


def _mixed(block: Block, spec: Moe, x: Tensor, logits: Tensor) -> Tensor:
    """SoftMoE: each slot mixes a sample's tokens, each token all slots."""
    if not block.expert_ranks.exchanges_rows:
        x, logits = _ForAllRanks.apply(x, block.tp), _ForAllRanks.apply(logits, block.tp)  # type: ignore[no-untyped-call]
    rows = spec.slots * x.shape[1]
    offsets = even_offsets(spec, rows, x)
    _tell(block, offsets)
    outputs = _through_experts(block, spec, mix_tokens(x, logits, spec), offsets, rows)
    return mix_slots(outputs, logits, spec)


def _tell(block: Block, offsets: Tensor) -> None:
    """Tell a trace of routing where each expert's rows end, once a pass."""
    if block.routed is not None and not block.results.recomputing:
        block.routed(offsets)


def _through_experts(
    block: Block, spec: Moe, x: Tensor, offsets: Tensor, capacity: int | None
) -> Tensor:
    ranks = block.expert_ranks
    if not ranks.exchanges_rows or ranks.ep * ranks.etp == 1:
        return experts(block, spec, x, offsets)
    if capacity is None:
        dispatch_plan = plan_dispatch(offsets, x.shape[0], ranks)
    else:
        dispatch_plan = even_dispatch(capacity, spec.experts, ranks)
    x = dispatch_rows(x, dispatch_plan, ranks, block.results)
    offsets = row_offsets(dispatch_plan.rows_per_expert, x.device)
    return return_rows(experts(block, spec, x, offsets), dispatch_plan, ranks, block.results)


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
