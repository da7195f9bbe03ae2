"""Ring attention; runs what ``shardwright.costmodel.layers.ring_attention`` prices.

Keys and values circulate among a sequence's ranks during attention; results are merged by
log-sum-exp in float32. They circulate again in the backward pass; their gradients travel along and
one step further, home (Liu et al., arXiv:2310.01889). Causal visibility follows from the ranks'
token numbers; without a mask every step is a full block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ....kernels.attention.ring_narrow_step import flash_narrow_step, flash_narrow_step_backward
from ....kernels.attention.ring_step import (
    flash_full_step,
    flash_full_step_backward,
    flash_step,
    flash_step_backward,
    merge_attention_,
)
from ....kernels.marks import mark
from ....spec.report.trace_marks import COMMUNICATE_CP
from ..token_layout import TokenLayout


class RingTransfer:
    """In-flight tensors to the next ring rank and from the previous one."""

    def __init__(self, ring: Ring, tensors: list[Tensor]) -> None:
        after, before = ring.neighbors
        self._sent = tensors
        self._receiving = [torch.empty_like(x) for x in tensors]
        sends = [dist.P2POp(dist.isend, x, after, ring.group, tag=n) for n, x in enumerate(tensors)]
        receives = [
            dist.P2POp(dist.irecv, x, before, ring.group, tag=n)
            for n, x in enumerate(self._receiving)
        ]
        with mark(COMMUNICATE_CP):
            self._works = dist.batch_isend_irecv([*sends, *receives])

    def wait(self) -> list[Tensor]:
        """The received tensors, once receives and sends are done."""
        with mark(COMMUNICATE_CP):
            for work in self._works:
                work.wait()
        received, self._sent, self._receiving = self._receiving, [], []
        return received


@dataclass(frozen=True, slots=True)
class Ring:
    """The ranks of each split sequence: group, ranks and tokens."""

    group: dist.ProcessGroup
    ranks: tuple[int, ...]
    tokens: TokenLayout

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def neighbors(self) -> tuple[int, int]:
        """The next and the previous rank, as global ranks."""
        place = self.tokens.position
        return self.ranks[(place + 1) % self.size], self.ranks[place - 1]

    def seen(self, step: int) -> list[int] | None:
        """Visible keys after ``step`` passes, as in ``TokenLayout.seen``; None: a causal square."""
        if step == 0:
            return None
        return self.tokens.seen((self.tokens.position - step) % self.size)

    def send_next(self, *tensors: Tensor) -> RingTransfer:
        """Start sending contiguous tensors to the next rank and receiving as many."""
        return RingTransfer(self, list(tensors))


def ring_attention(
    query: Tensor, key: Tensor, value: Tensor, ring: Ring, causal: bool = True
) -> Tensor:
    """Flash attention of local queries to the keys of the whole ring.

    Args:
        query: (local seq, batch, heads, key width).
        key: (local seq, batch, kv_heads, key width).
        value: (local seq, batch, kv_heads, value width).
        ring: the ranks.
        causal: mask later tokens.

    Returns:
        (local seq, batch, heads · value width).

    Raises:
        RunError: no flash kernel for these tensors on this device.
    """
    out: Tensor = _RingAttention.apply(  # type: ignore[no-untyped-call]
        query, key, value, ring, causal
    )
    return out


def _heads_first(x: Tensor) -> Tensor:
    return x.permute(1, 2, 0, 3)


def _sequence_first(x: Tensor) -> Tensor:
    return x.permute(2, 0, 1, 3)


class _RingAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, ring: Ring, causal: bool
    ) -> Tensor:
        key, value = key.contiguous(), value.contiguous()  # what is sent has no gaps
        out, log_sum = _forward(query, key, value, ring, causal)
        ctx.save_for_backward(query, key, value, out, log_sum)
        ctx.ring, ctx.causal = ring, causal
        return _sequence_first(out).flatten(2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        query, key, value, out, log_sum = ctx.saved_tensors
        (grad,) = grads
        grad = _heads_first(grad.reshape(*query.shape[:-1], -1))
        saved = (grad, _heads_first(query), out, log_sum)
        gradients = _backward(saved, [key, value], ctx.ring, ctx.causal)
        return (*gradients, None, None)


def _forward(
    query: Tensor, key: Tensor, value: Tensor, ring: Ring, causal: bool
) -> tuple[Tensor, Tensor]:
    """Output (batch, heads, seq, width) and log-sum-exps."""
    q, shards = _heads_first(query), [key, value]
    transfer = ring.send_next(*shards)
    out, log_sum = _attend(q, shards, ring.seen(0), causal)
    merged = out.float()
    del out
    for step in range(1, ring.size):
        shards = transfer.wait()
        if step + 1 < ring.size:
            transfer = ring.send_next(*shards)
        part, part_sum = _attend(q, shards, ring.seen(step), causal)
        merge_attention_(merged, log_sum, part, part_sum)
        del part, part_sum
    return merged.to(query.dtype), log_sum


def _backward(
    saved: tuple[Tensor, Tensor, Tensor, Tensor], shards: list[Tensor], ring: Ring, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, (seq, batch, heads, width)."""
    transfer = ring.send_next(*shards)
    part, *local_grads = _attend_backward(saved, shards, ring.seen(0), causal)
    grad_query = part.float()
    del part
    shards = transfer.wait()
    for step in range(1, ring.size):
        onward = shards if step + 1 < ring.size else []
        transfer = ring.send_next(*onward, *local_grads)
        part, *new_grads = _attend_backward(saved, shards, ring.seen(step), causal)
        grad_query.add_(part)
        del part
        arrived = transfer.wait()
        shards, local_grads = arrived[:-2], new_grads
        for gradient, travelled in zip(local_grads, arrived[-2:], strict=True):
            gradient.add_(travelled)
        del arrived, new_grads, travelled, onward
    home = ring.send_next(*local_grads).wait()
    of_query = _sequence_first(grad_query.to(saved[1].dtype))
    return of_query, home[0].transpose(0, 1), home[1].transpose(0, 1)


def _attend(
    query: Tensor, shards: list[Tensor], visible: list[int] | None, causal: bool
) -> tuple[Tensor, Tensor]:
    key, value = (_heads_first(x) for x in shards)
    if not causal:
        return flash_full_step(query, key, value)  # type: ignore[no-any-return]
    step = flash_step if value.shape[-1] == key.shape[-1] else flash_narrow_step
    return step(query, key, value, visible)  # type: ignore[no-any-return]


def _attend_backward(
    saved: tuple[Tensor, Tensor, Tensor, Tensor],
    shards: list[Tensor],
    visible: list[int] | None,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients: of queries (batch, heads, seq, width), of keys and values contiguous."""
    grad, query, out, log_sum = saved
    tensors = (grad, query, *(_heads_first(x) for x in shards), out, log_sum)
    if not causal:
        of_query, *others = flash_full_step_backward(*tensors)
    elif shards[0].shape[-1] == shards[1].shape[-1]:
        of_query, *others = flash_step_backward(*tensors, visible)
    else:
        of_query, *others = flash_narrow_step_backward(*tensors, visible)
    key, value = (x.transpose(1, 2) for x in others)
    return of_query, key, value


__all__ = ["Ring", "RingTransfer", "ring_attention"]
