"""Exchange of rows between ranks with different or split experts.

Runs what ``shardwright.costmodel.layers.moe`` prices. Real loads are uneven: ranks first exchange
row counts, then just those rows. Where ranks join rows of split experts, parts are padded to the
longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import Function

from ....kernels.group_ends import read_offsets
from ....kernels.marks import mark
from ....spec.report.trace_marks import COMMUNICATE_EP, COMMUNICATE_TP
from ...torch_compat import all_gather_single, reduce_scatter_single
from ..saved_results import NOT_KEPT, NamedResult, SavedResults

Sizes = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRanks:
    """The ranks that hold a layer's experts.

    ``ep_group`` (ep) hold different experts and exchange rows; ``etp_group`` (etp) split the same
    ones; None for one rank. ``exchanges_rows``: every rank has its own tokens, so rows travel;
    otherwise tensor-parallel ranks share tokens and sum results.
    """

    ep_group: dist.ProcessGroup | None = None
    ep: int = 1
    ep_rank: int = 0
    etp_group: dist.ProcessGroup | None = None
    etp: int = 1
    etp_rank: int = 0
    exchanges_rows: bool = True


NO_EXPERT_PARALLEL = ExpertRanks()


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """Rows between ranks, known on the host.

    ``sent`` and ``received``: rows to and from each rank with other experts. ``joined``: rows of
    each rank that splits the same experts. ``rows_by_source``: rows of each local expert by source,
    in exchanged order.
    """

    sent: Sizes
    received: Sizes
    joined: Sizes
    rows_by_source: list[Sizes]

    @property
    def rows_per_expert(self) -> Sizes:
        """Rows of each local expert from all sources."""
        return [sum(sizes) for sizes in zip(*self.rows_by_source, strict=True)]


def plan_dispatch(offsets: Tensor, rows: int, ranks: ExpertRanks) -> DispatchPlan:
    """Exchange row counts with the other ranks; waits for the device.

    ``offsets``: (experts,) end of each expert's rows on this rank; ``rows``: their number.
    """
    counts = [after - before for before, after in pairwise([0, *read_offsets(offsets, rows)])]
    local = len(counts) // ranks.ep
    received = torch.tensor(counts, dtype=torch.int64, device=offsets.device)
    if ranks.ep > 1:
        received_counts = torch.empty_like(received)
        with mark(COMMUNICATE_EP):
            dist.all_to_all_single(received_counts, received, group=ranks.ep_group)
        received = received_counts
    if ranks.etp > 1:
        gathered = received.new_empty(ranks.etp * len(counts))
        with mark(COMMUNICATE_EP):
            all_gather_single(gathered, received, group=ranks.etp_group)
        received = gathered
    sources = received.view(-1, local)
    is_dry = isinstance(received, FakeTensor)
    rows_by_source = [counts[:local]] * sources.shape[0] if is_dry else sources.tolist()
    local_rows = rows_by_source[ranks.etp_rank * ranks.ep :][: ranks.ep]
    return DispatchPlan(
        sent=[sum(counts[r * local :][:local]) for r in range(ranks.ep)],
        received=[sum(sizes) for sizes in local_rows],
        joined=[
            sum(map(sum, rows_by_source[r * ranks.ep :][: ranks.ep])) for r in range(ranks.etp)
        ],
        rows_by_source=rows_by_source,
    )


def even_dispatch(rows: int, experts: int, ranks: ExpertRanks) -> DispatchPlan:
    """The plan of ``rows`` from every rank to each of ``experts`` experts: nothing is exchanged."""
    local = experts // ranks.ep
    to_rank = [local * rows] * ranks.ep
    joined = [local * rows * ranks.ep] * ranks.etp
    return DispatchPlan(
        sent=to_rank,
        received=to_rank,
        joined=joined,
        rows_by_source=[[rows] * local] * (ranks.ep * ranks.etp),
    )


def dispatch_rows(
    rows: Tensor, dispatch_plan: DispatchPlan, ranks: ExpertRanks, results: SavedResults = NOT_KEPT
) -> Tensor:
    """Send this rank's rows, by expert, to the experts' ranks, by expert."""
    if ranks.ep > 1:
        way = (dispatch_plan.sent, dispatch_plan.received, ranks.ep_group)
        rows = _apply(_ExchangeRows, rows, *way, NamedResult(results, ("dispatch",)))
    if ranks.etp > 1:
        rows = _apply(_GatherRows, rows, dispatch_plan.joined, ranks)
    return _sorted(rows, dispatch_plan.rows_by_source, back=False)


def return_rows(
    rows: Tensor, dispatch_plan: DispatchPlan, ranks: ExpertRanks, results: SavedResults = NOT_KEPT
) -> Tensor:
    """Invert :func:`dispatch_rows`; results of split experts are summed."""
    rows = _sorted(rows, dispatch_plan.rows_by_source, back=True)
    if ranks.etp > 1:
        rows = _apply(_ReduceScatterRows, rows, dispatch_plan.joined, ranks)
    if ranks.ep > 1:
        way = (dispatch_plan.received, dispatch_plan.sent, ranks.ep_group)
        rows = _apply(_ExchangeRows, rows, *way, NamedResult(results, ("combine",)))
    return rows


def _apply(step: type[Function], *arguments: Any) -> Tensor:
    out: Tensor = step.apply(*arguments)  # type: ignore[no-untyped-call]
    return out


def _exchanged_rows(
    rows: Tensor, sent: Sizes, received: Sizes, group: dist.ProcessGroup | None
) -> Tensor:
    out = rows.new_empty(sum(received), rows.shape[1])
    rows = rows.contiguous()
    with mark(COMMUNICATE_EP):
        dist.all_to_all_single(out, rows, received, sent, group=group)
    return out


class _ExchangeRows(Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        sent: Sizes,
        received: Sizes,
        group: dist.ProcessGroup,
        named: NamedResult,
    ) -> Tensor:
        ctx.way = sent, received, group
        (kept,) = named.kept()
        out = _exchanged_rows(rows, sent, received, group) if kept is None else kept
        named.keep(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        sent, received, group = ctx.way
        return _exchanged_rows(grads[0], received, sent, group), None, None, None, None


def filled_up(rows: Tensor, longest: int) -> Tensor:
    """Rows with zeros after them, ``longest`` in all."""
    if rows.shape[0] == longest:
        return rows.contiguous()
    out = rows.new_zeros(longest, rows.shape[1])
    out[: rows.shape[0]] = rows
    return out


def _gathered_rows(rows: Tensor, sizes: Sizes, ranks: ExpertRanks) -> Tensor:
    longest = max(sizes)
    out = rows.new_empty(ranks.etp * longest, rows.shape[1])
    with mark(COMMUNICATE_TP):
        all_gather_single(out, filled_up(rows, longest), group=ranks.etp_group)
    if min(sizes) == longest:
        return out
    blocks = zip(out.split(longest), sizes, strict=True)  # type: ignore[no-untyped-call]
    return torch.cat([block[:size] for block, size in blocks])


def _reduced_rows(rows: Tensor, sizes: Sizes, ranks: ExpertRanks) -> Tensor:
    longest = max(sizes)
    if min(sizes) < longest:
        blocks = rows.split(sizes)  # type: ignore[no-untyped-call]
        rows = torch.cat([filled_up(block, longest) for block in blocks])
    out = rows.new_empty(longest, rows.shape[1])
    with mark(COMMUNICATE_TP):
        reduce_scatter_single(out, rows.contiguous(), group=ranks.etp_group)
    return out[: sizes[ranks.etp_rank]]


class _GatherRows(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: Sizes, ranks: ExpertRanks) -> Tensor:
        ctx.way = sizes, ranks
        return _gathered_rows(rows, sizes, ranks)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _reduced_rows(grads[0], *ctx.way), None, None


class _ReduceScatterRows(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: Sizes, ranks: ExpertRanks) -> Tensor:
        ctx.way = sizes, ranks
        return _reduced_rows(rows, sizes, ranks)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _gathered_rows(grads[0], *ctx.way), None, None


def reordered(rows: Tensor, sizes: Sizes, order: Sequence[int]) -> Tensor:
    """Blocks of rows of these sizes, in the order of their numbers."""
    blocks = rows.split(sizes)  # type: ignore[no-untyped-call]
    return torch.cat([blocks[number] for number in order])


class _Reorder(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: Sizes, order: Sequence[int]) -> Tensor:
        ctx.sizes, ctx.order = [sizes[number] for number in order], order
        return reordered(rows, sizes, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return reordered(grads[0], ctx.sizes, _inverse(ctx.order)), None, None


def _inverse(order: Sequence[int]) -> Sizes:
    inverse = [0] * len(order)
    for position, number in enumerate(order):
        inverse[number] = position
    return inverse


def _sorted(rows: Tensor, rows_by_source: list[Sizes], back: bool) -> Tensor:
    sources, experts = len(rows_by_source), len(rows_by_source[0])
    if sources == 1 or experts == 1:
        return rows
    order = [s * experts + e for e in range(experts) for s in range(sources)]
    sizes = [size for source in rows_by_source for size in source]
    if not back:
        return _apply(_Reorder, rows, sizes, order)
    return _apply(_Reorder, rows, [sizes[number] for number in order], _inverse(order))


def row_offsets(counts: Sizes, device: torch.device) -> Tensor:
    """(experts,) int32: end of each expert's rows."""
    return torch.tensor(list(accumulate(counts)), dtype=torch.int32, device=device)


__all__ = [
    "NO_EXPERT_PARALLEL",
    "DispatchPlan",
    "ExpertRanks",
    "dispatch_rows",
    "even_dispatch",
    "filled_up",
    "plan_dispatch",
    "reordered",
    "return_rows",
    "row_offsets",
]
