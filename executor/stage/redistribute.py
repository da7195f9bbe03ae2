"""Redistribution of activations between adjacent layers with different layouts.

Activations are (seq, batch, hidden): the data-parallel part of the batch, replicated or
sequence-sharded over tensor-parallel ranks. Steps: join the sequence, split or join the batch,
split the sequence. With a ring or Ulysses split on either side, ranks exchange tokens directly. A
join is a split in the backward pass and vice versa; replicas have equal, complete gradients, so no
step sums anything. Priced by ``shardwright.costmodel.ops.redistribute``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ...kernels.marks import mark
from ...spec.model.parameter_spec import split_range
from ...spec.parallel.rank_groups import (
    RankGroup,
    batch_redistribute_steps,
    exchanges_tokens,
    tensor_group,
)
from ...spec.report.trace_marks import COMMUNICATE_CP, COMMUNICATE_TP
from ...spec.strategy import LayerStrategy
from ..groups.process_groups import ProcessGroups
from ..groups.token_exchange import TokenExchange
from ..torch_compat import all_gather_single

SEQUENCE, BATCH = 0, 1


def _gather(x: Tensor, dim: int, group: dist.ProcessGroup, full_size: int) -> Tensor:
    """All ranks' parts joined along ``dim``; last ones may be short."""
    size = group.size()
    part = -(-full_size // size)
    if x.shape[dim] < part:
        padding = x.new_zeros((part - x.shape[0], *x.shape[1:]))
        x = torch.cat((x, padding))
    parts = torch.empty((size * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
    x = x.contiguous()
    with mark(COMMUNICATE_TP):
        all_gather_single(parts, x, group=group)
    if dim == SEQUENCE:
        return parts[:full_size]
    return parts.view(size, *x.shape).transpose(0, 1).flatten(1, 2).contiguous()


def _split(x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """This rank's part of ``x`` along ``dim``, in storage of its own."""
    start, stop = split_range(x.shape[dim], group.size(), group.rank())
    return x.narrow(dim, start, stop - start).clone(memory_format=torch.contiguous_format)


class _GatherDim(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup, full_size: int) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return _gather(x, dim, group, full_size)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return _split(grads[0], ctx.dim, ctx.group), None, None, None


class _SplitDim(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
        ctx.dim, ctx.group, ctx.full_size = dim, group, x.shape[dim]
        return _split(x, dim, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _gather(grads[0], ctx.dim, ctx.group, ctx.full_size), None, None


class _ExchangeTokens(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: TokenExchange) -> Tensor:
        ctx.plan = plan
        moved = _exchanged(x, plan.packed, plan.sends, plan.receives, plan.group)
        return moved[plan.arranged].view(*plan.after, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        plan: TokenExchange = ctx.plan
        moved = _exchanged(grads[0], plan.restored, plan.receives, plan.sends, plan.group)
        return moved[plan.unpacked].view(*plan.before, -1), None


def _exchanged(
    x: Tensor, order: Tensor, sends: list[int], receives: list[int], group: dist.ProcessGroup
) -> Tensor:
    """All-to-all of rows of ``x`` in a given order, (rows, hidden)."""
    packed = x.flatten(0, 1)[order]
    received = packed.new_empty((sum(receives), packed.shape[1]))
    with mark(COMMUNICATE_CP):
        dist.all_to_all_single(received, packed, receives, sends, group=group)
    return received


def _gathered(x: Tensor, dim: int, group: dist.ProcessGroup, full_size: int) -> Tensor:
    out: Tensor = _GatherDim.apply(x, dim, group, full_size)  # type: ignore[no-untyped-call]
    return out


def _local_part(x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    out: Tensor = _SplitDim.apply(x, dim, group)  # type: ignore[no-untyped-call]
    return out


def redistribute(
    x: Tensor, before: LayerStrategy, after: LayerStrategy, process_groups: ProcessGroups
) -> Tensor:
    """Redistribute activations from the layout of ``before`` to that of ``after``."""
    if before.layout == after.layout:
        return x
    if exchanges_tokens(before, after):
        return _exchange(x, before, after, process_groups)
    if before.layout[2]:
        group = process_groups.group(tensor_group(before))
        x = _gathered(x, SEQUENCE, group, x.shape[SEQUENCE] * before.tp)
    x = _redistribute_batch(x, before.tp, after.tp, process_groups)
    if after.layout[2]:
        x = _local_part(x, SEQUENCE, process_groups.group(tensor_group(after)))
    return x


def _exchange(
    x: Tensor, before: LayerStrategy, after: LayerStrategy, process_groups: ProcessGroups
) -> Tensor:
    """Exchange tokens, splitting replicas first and joining where ``after`` replicates."""
    if before.tp > 1 and not before.layout[2]:
        x = _local_part(x, SEQUENCE, process_groups.group(tensor_group(before)))
    x = _ExchangeTokens.apply(x, process_groups.token_exchange(before, after))  # type: ignore[no-untyped-call]
    if after.tp > 1 and not after.layout[2]:
        x = _gathered(
            x,
            SEQUENCE,
            process_groups.group(tensor_group(after)),
            process_groups.local_tokens(after),
        )
    return x


def _redistribute_batch(
    x: Tensor, tp_from: int, tp_to: int, process_groups: ProcessGroups
) -> Tensor:
    steps: list[RankGroup] = batch_redistribute_steps(tp_from, tp_to)
    splits = len(steps) == 2 or tp_from > tp_to
    for step in steps:
        group = process_groups.group(step)
        if splits:
            x = _local_part(x, BATCH, group)
        else:
            x = _gathered(x, BATCH, group, x.shape[BATCH] * group.size())
        splits = False
    return x
