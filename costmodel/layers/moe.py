"""A mixture of experts as symbolic work: route, send, compute, send back, combine.

The order is that of Megatron-Core's all-to-all dispatcher: each rank routes its own tokens,
copies them into rows sorted by expert, exchanges rows with the ranks that hold other experts
(ep), joins those of the ranks that split the same experts (etp), runs grouped products, and
goes the same way back. Where tensor-parallel ranks have the same tokens, experts are split as
an MLP is and summed; no row travels.

With a capacity every expert gets a buffer of that many rows from each rank, filled up or cut
(GShard, arXiv:2006.16668, section 2.2); without one, no token is dropped and ranks first tell
each other how many rows come. Loads are assumed even, and the wait for those counts is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...spec.model.feed_forward import Mlp, Moe
from ...spec.parallel.rank_groups import RankGroup, expert_group, expert_tensor_group
from ...spec.strategy import LayerStrategy
from ..ops.activation import activation
from ..ops.context import OpContext
from ..ops.experts import (
    copy_to_tensor_parallel,
    exchange,
    grouped_linear,
    join_rows,
    reduce_from_tensor_parallel,
    sort_by_expert,
    sum_rows,
    weighted_activation,
)
from ..ops.linear import whole_linear
from ..ops.routing import combine, expert_order, permute, permute_weights, route, weighted_combine
from ..symbolic.tape import SymbolicTensor
from .mlp import mlp


@dataclass(frozen=True, slots=True)
class _ExpertSplit:
    """How a rank's experts are split: ranks that hold others, ranks that hold parts.

    ``travels``: rows go to other ranks; otherwise tensor-parallel ranks share the tokens.
    """

    others: RankGroup
    parts: RankGroup
    travels: bool

    @property
    def ranks(self) -> int:
        """Ranks whose rows come together."""
        return self.others.size * self.parts.size if self.travels else 1


def mixture(
    c: OpContext, moe: Moe, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """What a mixture of experts makes of each token of (seq, batch, hidden) ``x``."""
    split = _ExpertSplit(
        expert_group(strategy),
        expert_tensor_group(strategy),
        strategy.tp == 1 or strategy.sequence_parallel != "none",
    )
    weights, chosen = route(c, moe, whole_linear(c, x, moe.experts, moe.router_bias, "router"))
    shared = _shared(c, moe, hidden, strategy, x) if moe.shared_ffn else None
    if moe.latent is not None:
        x = whole_linear(c, x, moe.latent, moe.bias, "latent_down")
    if not split.travels:
        x, weights = copy_to_tensor_parallel(c, x), copy_to_tensor_parallel(c, weights)
    out = _routed(c, moe, split, x, weights, chosen)
    if not split.travels:
        out = reduce_from_tensor_parallel(c, out)
    if moe.latent is not None:
        out = whole_linear(c, out, hidden, moe.bias, "latent_up")
    return out if shared is None else _added(c, out, shared)


def rows_of(moe: Moe, tokens: int) -> int:
    """Rows that ``tokens`` tokens of a rank become."""
    if moe.capacity_factor is None:
        return tokens * moe.topk
    return moe.experts * math.ceil(tokens * moe.topk * moe.capacity_factor / moe.experts)


def _routed(
    c: OpContext,
    moe: Moe,
    split: _ExpertSplit,
    x: SymbolicTensor,
    weights: SymbolicTensor,
    chosen: SymbolicTensor,
) -> SymbolicTensor:
    """The weighted sum of what its experts make of each token."""
    shape = x.shape
    order = expert_order(c.tape, chosen, rows_of(moe, x.elements // shape[-1]))
    inside = c.stack.fusion.weighted_activation
    carried = permute_weights(c, weights, order) if inside else None
    rows = permute(c, x, order)
    if split.travels and moe.capacity_factor is None:
        _exchange_counts(c, moe, split)
    rows = _dispatch(c, moe, split, rows)
    if carried is not None:
        carried = _dispatch(c, moe, split, carried)
    rows = _experts(c, moe, split, rows, carried)
    del carried
    rows = _return_rows(c, moe, split, rows)
    if inside:
        return combine(c, rows, order, shape)
    return weighted_combine(c, rows, permute_weights(c, weights, order), order, shape)


def _exchange_counts(c: OpContext, moe: Moe, split: _ExpertSplit) -> None:
    """Ranks tell each other how many rows come to each expert, over ep and then over etp."""
    counts = c.tape.new((moe.experts,), "int64")
    if split.others.size > 1:
        c.tape.collective("all_to_all", split.others, counts, term="exposed_ep")
    if split.parts.size > 1:
        every = c.tape.new((split.parts.size * moe.experts,), "int64")
        c.tape.collective("all_gather", split.parts, every, term="exposed_ep")


def _dispatch(c: OpContext, moe: Moe, split: _ExpertSplit, rows: SymbolicTensor) -> SymbolicTensor:
    """Rows of this rank's tokens become rows of this rank's experts."""
    if not split.travels:
        return rows
    rows = join_rows(c, exchange(c, rows, split.others, moe.topk), split.parts)
    return sort_by_expert(c, rows, moe.experts // split.others.size, split.ranks)


def _return_rows(
    c: OpContext, moe: Moe, split: _ExpertSplit, rows: SymbolicTensor
) -> SymbolicTensor:
    """Rows of this rank's experts become rows of this rank's tokens."""
    if not split.travels:
        return rows
    rows = sort_by_expert(c, rows, moe.experts // split.others.size, split.ranks)
    return exchange(c, sum_rows(c, rows, split.parts), split.others, moe.topk)


def _experts(
    c: OpContext,
    moe: Moe,
    split: _ExpertSplit,
    rows: SymbolicTensor,
    weights: SymbolicTensor | None,
) -> SymbolicTensor:
    """What each expert makes of its rows; ``weights`` are applied where they came along."""
    experts, width = moe.experts // split.others.size, moe.ffn // split.parts.size
    inner = rows.shape[-1]
    widths = (width, width) if moe.gated else (width,)
    projected = grouped_linear(c, rows, experts, widths, moe.bias)
    del rows
    if weights is None:
        hidden = activation(c, projected, moe.activation, bias=False)
    else:
        hidden = weighted_activation(c, projected, weights, moe.activation)
    del projected
    return grouped_linear(c, hidden, experts, (inner,), moe.bias)[0]


def _shared(
    c: OpContext, moe: Moe, hidden: int, strategy: LayerStrategy, x: SymbolicTensor
) -> SymbolicTensor:
    """What the shared experts, an MLP of their joint width, make of every token."""
    spec = Mlp(ffn=moe.shared_ffn, activation=moe.activation, bias=moe.bias)
    out = mlp(c, spec, hidden, strategy, x, prefix="shared_")
    if not moe.shared_gate:
        return out
    t = c.tape
    raw = whole_linear(c, x, 1, bias=False, name="shared_expert_gate")
    gate = t.kernel("sigmoid", (raw,), t.like(raw))
    t.record((gate,), (raw,), lambda grad: (t.kernel("sigmoid_backward", (grad, gate), grad),))
    return _gated(c, out, gate)


def _gated(c: OpContext, x: SymbolicTensor, gate: SymbolicTensor) -> SymbolicTensor:
    """``x`` times one number a token."""
    t = c.tape
    out = t.kernel("mul", (x, gate), t.like(x))

    def backward(grad: SymbolicTensor) -> tuple[SymbolicTensor | None, ...]:
        grad_gate = t.kernel("mul", (grad, x), t.like(x))
        grad_x = t.kernel("mul", (grad, gate), t.like(x))
        return grad_x, t.kernel("sum", (grad_gate,), t.like(gate))

    t.record((out,), (x, gate), backward)
    return out


def _added(c: OpContext, routed: SymbolicTensor, shared: SymbolicTensor) -> SymbolicTensor:
    t = c.tape
    out = t.kernel("add", (routed, shared), t.like(routed))
    t.record((out,), (routed, shared), lambda grad: (grad, grad))
    return out
