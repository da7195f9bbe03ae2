"""Mixture of experts: route, dispatch, compute, return, combine.

As Megatron-Core's all-to-all dispatcher: each rank routes its tokens, copies them into rows sorted
by expert, exchanges rows with the ranks of other experts (ep), joins those of the ranks that split
the same experts (etp), runs grouped products, and returns the same way. Tensor-parallel ranks with
the same tokens split experts like an MLP and sum, without exchange.

With a capacity every expert gets a buffer of that many rows from each rank, padded or truncated
(GShard, arXiv:2006.16668, section 2.2), as where experts choose or mix tokens: an even load.
Otherwise no token is dropped and ranks first exchange row counts; waiting for those is free. Priced
is the fullest rank: under a load that is not even it gets more rows than it has tokens for, and all
wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.cluster.stack_spec import WHOLE_ROWS
from ...spec.model.feed_forward import Mlp, Moe, expert_capacity
from ...spec.parallel.rank_groups import RankGroup, expert_group, expert_tensor_group
from ...spec.strategy import LayerStrategy
from ..ops.activation import activation
from ..ops.context import OpContext
from ..ops.linear import replicated_linear
from ..ops.moe.combine import combine, weighted_combine
from ..ops.moe.dispatch import (
    copy_to_tensor_parallel,
    exchange,
    join_rows,
    reduce_from_tensor_parallel,
    sort_by_expert,
    sum_rows,
)
from ..ops.moe.experts import grouped_linear, weighted_activation
from ..ops.moe.gate import choose_tokens, jittered, route, router_logits
from ..ops.moe.order import limited_order, permute, permute_weights, weighted_rows
from ..ops.moe.soft import mix_slots, mix_tokens
from ..symbolic.tape import SymbolicTensor
from .expert_chunks import ExpertWay, chunked_experts, exchange_chunk_counts
from .mlp import mlp


@dataclass(frozen=True, slots=True)
class _ExpertSplit:
    """Split of a rank's experts over ep and etp ranks.

    ``exchanges_rows``: rows go to other ranks; otherwise tensor-parallel ranks share the tokens.
    """

    ep_group: RankGroup
    etp_group: RankGroup
    exchanges_rows: bool

    @property
    def ranks(self) -> int:
        """Ranks contributing rows to one grouped product."""
        return self.ep_group.size * self.etp_group.size if self.exchanges_rows else 1


def mixture(
    c: OpContext, moe: Moe, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Mixture of experts over (seq, batch, hidden) ``x``."""
    split = _ExpertSplit(
        expert_group(strategy),
        expert_tensor_group(strategy),
        strategy.tp == 1 or strategy.sequence_parallel != "none",
    )
    balance = moe.balance
    if balance is not None and balance.jitter and balance.jitters == "input":
        x = jittered(c, x, strategy.sequence_split)
    logits = router_logits(c, moe, x, strategy.sequence_split)
    shared = _shared(c, moe, hidden, strategy, x) if moe.shared_ffn else None
    if moe.latent is not None:
        x = replicated_linear(c, x, moe.latent, moe.bias, "latent_down")
    routed = _mixed if moe.gate == "soft" else _routed
    out = routed(c, moe, split, x, logits, strategy.sequence_split)
    if not split.exchanges_rows:
        out = reduce_from_tensor_parallel(c, out)
    if moe.latent is not None:
        out = replicated_linear(c, out, hidden, moe.bias, "latent_up")
    return out if shared is None else _add(c, out, shared)


def rows_of(moe: Moe, tokens: int) -> int:
    """Expert rows of ``tokens`` tokens of a rank."""
    return moe.experts * expert_capacity(moe, tokens) if moe.fills_rows else tokens * moe.topk


def _mixed(
    c: OpContext,
    moe: Moe,
    split: _ExpertSplit,
    x: SymbolicTensor,
    logits: SymbolicTensor,
    _sequence_split: int,
) -> SymbolicTensor:
    """SoftMoE: each slot mixes a sample's tokens, each token all slots."""
    if not split.exchanges_rows:
        x, logits = copy_to_tensor_parallel(c, x), copy_to_tensor_parallel(c, logits)
    own = mix_tokens(c, moe, x, logits)
    count = own.shape[0]
    rows = _dispatch(c, moe, split, own, "dispatch")
    del own
    rows = _return_rows(c, moe, split, _experts(c, moe, split, rows, None), count)
    return mix_slots(c, moe, rows, logits)


def _routed(
    c: OpContext,
    moe: Moe,
    split: _ExpertSplit,
    x: SymbolicTensor,
    logits: SymbolicTensor,
    sequence_split: int,
) -> SymbolicTensor:
    """Weighted sum of the experts' results for each token."""
    rows_here = rows_of(moe, logits.elements // moe.experts)
    if moe.gate == "expert_choice":
        weights, order = choose_tokens(c, moe, logits, rows_here)
    else:
        weights, expert_indices = route(c, moe, logits, sequence_split)
        order = limited_order(c, moe, expert_indices, weights, rows_here)
    if not split.exchanges_rows:
        x, weights = copy_to_tensor_parallel(c, x), copy_to_tensor_parallel(c, weights)
    shape = x.shape
    if c.stack.expert_chunks != WHOLE_ROWS:
        way = ExpertWay(split.ep_group, split.etp_group, c.stack.expert_chunks)
        order = exchange_chunk_counts(c, moe, way, order)
        rows = chunked_experts(c, moe, way, permute(c, x, order))
        return weighted_combine(c, rows, permute_weights(c, moe, weights, order), order, shape)
    weighs_inputs = moe.weigh == "inputs"
    weights_inside = c.stack.fusion.weighted_activation and not weighs_inputs
    row_weights = permute_weights(c, moe, weights, order) if weights_inside else None
    rows = permute(c, x, order)
    if weighs_inputs:
        rows = weighted_rows(c, rows, permute_weights(c, moe, weights, order))
    if split.exchanges_rows and not moe.fills_rows:
        _exchange_counts(c, moe, split)
    rows = _dispatch(c, moe, split, rows, "dispatch")
    if row_weights is not None:
        row_weights = _dispatch(c, moe, split, row_weights)
    rows = _experts(c, moe, split, rows, row_weights)
    del row_weights
    rows = _return_rows(c, moe, split, rows, order.elements)
    if weights_inside or weighs_inputs:
        return combine(c, rows, order, shape)
    return weighted_combine(c, rows, permute_weights(c, moe, weights, order), order, shape)


def _exchange_counts(c: OpContext, moe: Moe, split: _ExpertSplit) -> None:
    counts = c.tape.new((moe.experts,), "int64")
    if split.ep_group.size > 1:
        c.tape.collective("all_to_all", split.ep_group, counts, term="exposed_ep")
    if split.etp_group.size > 1:
        gathered = c.tape.new((split.etp_group.size * moe.experts,), "int64")
        c.tape.collective("all_gather", split.etp_group, gathered, term="exposed_ep")


def _dispatch(
    c: OpContext, moe: Moe, split: _ExpertSplit, rows: SymbolicTensor, name: str = ""
) -> SymbolicTensor:
    if not split.exchanges_rows:
        return rows
    received = c.fullest_rows(rows.shape[0], split.ep_group.size)
    rows = exchange(c, rows, split.ep_group, moe.topk, name, received)
    rows = join_rows(c, rows, split.etp_group)
    return sort_by_expert(c, rows, moe.experts // split.ep_group.size, split.ranks)


def _return_rows(
    c: OpContext, moe: Moe, split: _ExpertSplit, rows: SymbolicTensor, own: int
) -> SymbolicTensor:
    """Rows back at their tokens, ``own`` of this rank."""
    if not split.exchanges_rows:
        return rows
    rows = sort_by_expert(c, rows, moe.experts // split.ep_group.size, split.ranks)
    rows = sum_rows(c, rows, split.etp_group)
    return exchange(c, rows, split.ep_group, moe.topk, "combine", own)


def _experts(
    c: OpContext,
    moe: Moe,
    split: _ExpertSplit,
    rows: SymbolicTensor,
    weights: SymbolicTensor | None,
) -> SymbolicTensor:
    """Expert MLPs on their rows; ``weights`` are applied inside if given."""
    experts, width = moe.experts // split.ep_group.size, moe.ffn // split.etp_group.size
    inner = rows.shape[-1]
    widths = (width, width) if moe.gated else (width,)
    names = ("experts_gate", "experts_up") if moe.gated else ("experts_up",)
    projected = grouped_linear(c, rows, experts, widths, moe.bias, names)
    del rows
    if weights is None:
        hidden = activation(c, projected, moe.activation, bias=False)
    else:
        hidden = weighted_activation(c, projected, weights, moe.activation)
    del projected
    return grouped_linear(c, hidden, experts, (inner,), moe.bias, ("experts_down",))[0]


def _shared(
    c: OpContext, moe: Moe, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """Shared experts: an MLP of their joint width on every token."""
    spec = Mlp(ffn=moe.shared_ffn, activation=moe.activation, bias=moe.bias)
    out = mlp(c, spec, hidden, strategy, x, prefix="shared_")
    if not moe.shared_gate:
        return out
    t = c.tape
    raw = replicated_linear(c, x, 1, bias=False, name="shared_expert_gate")
    gate = t.kernel("sigmoid", (raw,), t.like(raw))
    t.record((gate,), (raw,), lambda grad: (t.kernel("sigmoid_backward", (grad, gate), grad),))
    return _gated(c, out, gate)


def _gated(c: OpContext, x: SymbolicTensor, gate: SymbolicTensor) -> SymbolicTensor:
    """``x`` times one number per token."""
    t = c.tape
    out = t.kernel("mul", (x, gate), t.like(x))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_gate = t.kernel("mul", (grad, x), t.like(x))
        grad_x = t.kernel("mul", (grad, gate), t.like(x))
        return grad_x, t.kernel("sum", (grad_gate,), t.like(gate))

    t.record((out,), (x, gate), backward)
    return out


def _add(c: OpContext, routed: SymbolicTensor, shared: SymbolicTensor) -> SymbolicTensor:
    t = c.tape
    out = t.kernel("add", (routed, shared), t.like(routed))
    t.record((out,), (routed, shared), lambda grad: (grad, grad))
    return out
