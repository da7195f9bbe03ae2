"""Moving activations between neighbouring layers that split them differently.

A layer holds activations as (seq, batch, hidden): its data-parallel part of the batch, the
same on all its tensor-parallel ranks, or with sequence parallelism its shard of the sequence.
A change is a few steps: join the sequence, cut or join the batch, cut the sequence. What is
joined forward is cut backward and the other way round; replicated activations have equal,
complete gradients on every rank, so no step sums anything.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ..kernels.marks import mark
from ..spec.groups import RankGroup, batch_steps, tensor_group
from ..spec.marks import COMMUNICATE_TP
from ..spec.strategy import LayerStrategy
from .mesh import GroupBook
from .torch_api import all_gather_single

SEQUENCE, BATCH = 0, 1


def _join(x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """All ranks' parts side by side along ``dim``."""
    size = group.size()
    parts = torch.empty((size * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
    x = x.contiguous()
    with mark(COMMUNICATE_TP):
        all_gather_single(parts, x, group=group)
    if dim == SEQUENCE:
        return parts
    return parts.view(size, *x.shape).transpose(0, 1).flatten(1, 2).contiguous()


def _cut(x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """This rank's part of ``x`` along ``dim``, in storage of its own."""
    part = x.shape[dim] // group.size()
    return x.narrow(dim, group.rank() * part, part).clone(memory_format=torch.contiguous_format)


class _Join(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return _join(x, dim, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _cut(grads[0], ctx.dim, ctx.group), None, None


class _Cut(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return _cut(x, dim, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _join(grads[0], ctx.dim, ctx.group), None, None


def _apply(step: type[Function], x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    out: Tensor = step.apply(x, dim, group)  # type: ignore[no-untyped-call]
    return out


def relayout(x: Tensor, before: LayerStrategy, after: LayerStrategy, book: GroupBook) -> Tensor:
    """Activations in the layout of ``before`` brought into that of ``after``.

    Args:
        x: this rank's part after the layer with strategy ``before``.
        before: strategy of the layer that made it.
        after: strategy of the layer that takes it.
        book: the rank's groups.
    """
    if (before.tp, before.megatron_sp) == (after.tp, after.megatron_sp):
        return x
    if before.megatron_sp:
        x = _apply(_Join, x, SEQUENCE, book.group(tensor_group(before)))
    x = _move_batch(x, before.tp, after.tp, book)
    if after.megatron_sp:
        x = _apply(_Cut, x, SEQUENCE, book.group(tensor_group(after)))
    return x


def _move_batch(x: Tensor, tp_from: int, tp_to: int, book: GroupBook) -> Tensor:
    steps: list[RankGroup] = batch_steps(tp_from, tp_to)
    cuts = len(steps) == 2 or tp_from > tp_to
    for step in steps:
        x = _apply(_Cut if cuts else _Join, x, BATCH, book.group(step))
        cuts = False
    return x
