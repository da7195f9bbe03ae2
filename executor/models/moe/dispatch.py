"""Rows on their way between ranks that hold different experts, or parts of the same ones.

Runs what :mod:`shardwright.costmodel.layers.moe` prices. Loads are uneven in truth: ranks first
tell each
other how many rows come, and the exchange moves just those. Where ranks join the rows of experts
that they split, parts are filled up to the longest one.
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

Sizes = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRanks:
    """The ranks that a layer's experts are spread over.

    ``ep_group`` (ep) hold different experts and exchange rows, ``etp_group`` (etp) split the same
    ones;
    groups are None where there is one rank. ``exchanges_rows``: every rank has tokens of its own,
    so rows
    go to other ranks; otherwise tensor-parallel ranks have the same tokens and sum their results.
    """

    ep_group: dist.ProcessGroup | None = None
    ep: int = 1
    ep_rank: int = 0
    etp_group: dist.ProcessGroup | None = None
    etp: int = 1
    etp_rank: int = 0
    exchanges_rows: bool = True


ALONE = ExpertRanks()


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """How many rows go where, known on the host.

    ``sent`` and ``received``: rows to and from each rank that holds other experts. ``joined``: rows
    of each rank that splits the same experts. ``pieces``: rows of each local expert, source by
    source, as they lie once all are there.
    """

    sent: Sizes
    received: Sizes
    joined: Sizes
    pieces: list[Sizes]

    @property
    def rows_per_expert(self) -> Sizes:
        """Rows of each local expert from all sources."""
        return [sum(sizes) for sizes in zip(*self.pieces, strict=True)]


def plan_dispatch(offsets: Tensor, rows: int, ranks: ExpertRanks) -> DispatchPlan:
    """Ask the other ranks how many rows come; waits for the device.

    Args:
        offsets: (experts,) where the rows of each expert end on this rank.
        rows: of all experts.
        ranks: that experts are spread over.
    """
    counts = [after - before for before, after in pairwise([0, *read_offsets(offsets, rows)])]
    local = len(counts) // ranks.ep
    here = torch.tensor(counts, dtype=torch.int64, device=offsets.device)
    if ranks.ep > 1:
        there = torch.empty_like(here)
        with mark(COMMUNICATE_EP):
            dist.all_to_all_single(there, here, group=ranks.ep_group)
        here = there
    if ranks.etp > 1:
        every = here.new_empty(ranks.etp * len(counts))
        with mark(COMMUNICATE_EP):
            all_gather_single(every, here, group=ranks.etp_group)
        here = every
    sources = here.view(-1, local)
    is_dry = isinstance(here, FakeTensor)
    pieces = [counts[:local]] * sources.shape[0] if is_dry else sources.tolist()
    own = pieces[ranks.etp_rank * ranks.ep :][: ranks.ep]
    return DispatchPlan(
        sent=[sum(counts[r * local :][:local]) for r in range(ranks.ep)],
        received=[sum(sizes) for sizes in own],
        joined=[sum(map(sum, pieces[r * ranks.ep :][: ranks.ep])) for r in range(ranks.etp)],
        pieces=pieces,
    )


def dispatch_rows(rows: Tensor, dispatch_plan: DispatchPlan, ranks: ExpertRanks) -> Tensor:
    """Rows of this rank's tokens, by expert, become rows of this rank's experts, by expert."""
    if ranks.ep > 1:
        rows = _apply(
            _ExchangeRows, rows, dispatch_plan.sent, dispatch_plan.received, ranks.ep_group
        )
    if ranks.etp > 1:
        rows = _apply(_GatherRows, rows, dispatch_plan.joined, ranks)
    return _sorted(rows, dispatch_plan.pieces, back=False)


def return_rows(rows: Tensor, dispatch_plan: DispatchPlan, ranks: ExpertRanks) -> Tensor:
    """The way back; what ranks that split experts made of a row is summed."""
    rows = _sorted(rows, dispatch_plan.pieces, back=True)
    if ranks.etp > 1:
        rows = _apply(_ReduceScatterRows, rows, dispatch_plan.joined, ranks)
    if ranks.ep > 1:
        rows = _apply(
            _ExchangeRows, rows, dispatch_plan.received, dispatch_plan.sent, ranks.ep_group
        )
    return rows


def _apply(step: type[Function], *given: Any) -> Tensor:
    out: Tensor = step.apply(*given)  # type: ignore[no-untyped-call]
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
        ctx: Any, rows: Tensor, sent: Sizes, received: Sizes, group: dist.ProcessGroup
    ) -> Tensor:
        ctx.way = sent, received, group
        return _exchanged_rows(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        sent, received, group = ctx.way
        return _exchanged_rows(grads[0], received, sent, group), None, None, None


def _filled_up(rows: Tensor, longest: int) -> Tensor:
    """Rows with empty ones behind them, ``longest`` in all."""
    if rows.shape[0] == longest:
        return rows.contiguous()
    out = rows.new_zeros(longest, rows.shape[1])
    out[: rows.shape[0]] = rows
    return out


def _gathered_rows(rows: Tensor, sizes: Sizes, ranks: ExpertRanks) -> Tensor:
    """All parts' rows, one part after another."""
    longest = max(sizes)
    out = rows.new_empty(ranks.etp * longest, rows.shape[1])
    with mark(COMMUNICATE_TP):
        all_gather_single(out, _filled_up(rows, longest), group=ranks.etp_group)
    if min(sizes) == longest:
        return out
    blocks = zip(out.split(longest), sizes, strict=True)  # type: ignore[no-untyped-call]
    return torch.cat([block[:size] for block, size in blocks])


def _reduced_rows(rows: Tensor, sizes: Sizes, ranks: ExpertRanks) -> Tensor:
    """This rank's own rows, each summed over the parts."""
    longest = max(sizes)
    if min(sizes) < longest:
        blocks = rows.split(sizes)  # type: ignore[no-untyped-call]
        rows = torch.cat([_filled_up(block, longest) for block in blocks])
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


def _reordered(rows: Tensor, sizes: Sizes, order: Sequence[int]) -> Tensor:
    pieces = rows.split(sizes)  # type: ignore[no-untyped-call]
    return torch.cat([pieces[number] for number in order])


class _Reorder(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: Sizes, order: Sequence[int]) -> Tensor:
        ctx.sizes, ctx.order = [sizes[number] for number in order], order
        return _reordered(rows, sizes, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _reordered(grads[0], ctx.sizes, _inverse(ctx.order)), None, None


def _inverse(order: Sequence[int]) -> Sizes:
    found = [0] * len(order)
    for place, number in enumerate(order):
        found[number] = place
    return found


def _sorted(rows: Tensor, pieces: list[Sizes], back: bool) -> Tensor:
    """Rows that lie source by source put expert by expert, or back."""
    sources, experts = len(pieces), len(pieces[0])
    if sources == 1 or experts == 1:
        return rows
    order = [s * experts + e for e in range(experts) for s in range(sources)]
    sizes = [size for each in pieces for size in each]
    if not back:
        return _apply(_Reorder, rows, sizes, order)
    return _apply(_Reorder, rows, [sizes[number] for number in order], _inverse(order))


def row_offsets(counts: Sizes, device: torch.device) -> Tensor:
    """(experts,) int32: where each expert's rows end."""
    return torch.tensor(list(accumulate(counts)), dtype=torch.int32, device=device)


__all__ = [
    "ALONE",
    "DispatchPlan",
    "ExpertRanks",
    "dispatch_rows",
    "plan_dispatch",
    "return_rows",
    "row_offsets",
]
