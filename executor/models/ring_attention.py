"""Ring attention on real ranks: what :mod:`shardwright.costmodel.layers.ring_attention` prices.

Keys and values go round the ranks that hold pieces of a sequence while attention works on those
at hand; results are merged by their log-sum-exps in float32. Backward they go round again, and
their gradients travel with them and one step further, home (Liu et al., arXiv:2310.01889).
Under a causal mask, which keys a query sees follows the token numbers of the ring's ranks; without
one every step is a whole block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ...kernels.attention.ring_narrow_step import flash_narrow_step, flash_narrow_step_backward
from ...kernels.attention.ring_step import (
    flash_full_step,
    flash_full_step_backward,
    flash_step,
    flash_step_backward,
    merge_attention_,
)
from ...kernels.marks import mark
from ...spec.report.trace_marks import COMMUNICATE_CP
from .token_layout import TokenLayout


class RingTransfer:
    """Tensors on their way to the next rank of a ring, and those that come from the one before."""

    def __init__(self, ring: Ring, held: list[Tensor]) -> None:
        after, before = ring.neighbours
        self._held = held
        self._coming = [torch.empty_like(x) for x in held]
        sends = [dist.P2POp(dist.isend, x, after, ring.group, tag=n) for n, x in enumerate(held)]
        receives = [
            dist.P2POp(dist.irecv, x, before, ring.group, tag=n) for n, x in enumerate(self._coming)
        ]
        with mark(COMMUNICATE_CP):
            self._works = dist.batch_isend_irecv([*sends, *receives])

    def wait(self) -> list[Tensor]:
        """What came, once all of it is there and what was sent is gone."""
        with mark(COMMUNICATE_CP):
            for work in self._works:
                work.wait()
        coming, self._held, self._coming = self._coming, [], []
        return coming


@dataclass(frozen=True, slots=True)
class Ring:
    """The ranks that split each sequence into pieces: a group, its ranks and their tokens."""

    group: dist.ProcessGroup
    ranks: tuple[int, ...]
    tokens: TokenLayout

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self.ranks)

    @property
    def neighbours(self) -> tuple[int, int]:
        """The next rank, and the one before, of the world."""
        place = self.tokens.position
        return self.ranks[(place + 1) % self.size], self.ranks[place - 1]

    def seen(self, step: int) -> list[int] | None:
        """What is seen of the keys that are here after ``step`` passes; None: a causal square."""
        if step == 0:
            return None
        return self.tokens.seen((self.tokens.position - step) % self.size)

    def send_next(self, *held: Tensor) -> RingTransfer:
        """Start to send contiguous tensors to the next rank, and to receive as many."""
        return RingTransfer(self, list(held))


def ring_attention(
    query: Tensor, key: Tensor, value: Tensor, ring: Ring, causal: bool = True
) -> Tensor:
    """Flash attention of local queries to the keys of the whole ring.

    Args:
        query: (local seq, batch, heads, width of a key).
        key: (local seq, batch, kv_heads, width of a key).
        value: (local seq, batch, kv_heads, width of a value).
        ring: the ranks.
        causal: a query sees the tokens up to its own; else all.

    Returns:
        (local seq, batch, heads · width of a value).

    Raises:
        RunError: no flash kernel for these tensors on this device.
    """
    out: Tensor = _RingAttention.apply(  # type: ignore[no-untyped-call]
        query, key, value, ring, causal
    )
    return out


def _heads_first(x: Tensor) -> Tensor:
    """(seq, batch, heads, width) as (batch, heads, seq, width), a view."""
    return x.permute(1, 2, 0, 3)


def _sequence_first(x: Tensor) -> Tensor:
    """The way back."""
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
        given = (grad, _heads_first(query), out, log_sum)
        found = _backward(given, [key, value], ctx.ring, ctx.causal)
        return (*found, None, None)


def _forward(
    query: Tensor, key: Tensor, value: Tensor, ring: Ring, causal: bool
) -> tuple[Tensor, Tensor]:
    """Output (batch, heads, seq, width) and log-sum-exps."""
    q, held = _heads_first(query), [key, value]
    coming = ring.send_next(*held)
    out, log_sum = _attend(q, held, ring.seen(0), causal)
    merged = out.float()
    del out
    for step in range(1, ring.size):
        held = coming.wait()
        if step + 1 < ring.size:
            coming = ring.send_next(*held)
        part, part_sum = _attend(q, held, ring.seen(step), causal)
        merge_attention_(merged, log_sum, part, part_sum)
        del part, part_sum
    return merged.to(query.dtype), log_sum


def _backward(
    given: tuple[Tensor, Tensor, Tensor, Tensor], held: list[Tensor], ring: Ring, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, (seq, batch, heads, width)."""
    coming = ring.send_next(*held)
    part, *own = _attend_backward(given, held, ring.seen(0), causal)
    grad_query = part.float()
    del part
    held = coming.wait()
    for step in range(1, ring.size):
        onward = held if step + 1 < ring.size else []
        coming = ring.send_next(*onward, *own)
        part, *mine = _attend_backward(given, held, ring.seen(step), causal)
        grad_query.add_(part)
        del part
        arrived = coming.wait()
        held, own = arrived[:-2], mine
        for gradient, travelled in zip(own, arrived[-2:], strict=True):
            gradient.add_(travelled)
        del arrived, mine, travelled, onward
    home = ring.send_next(*own).wait()
    of_query = _sequence_first(grad_query.to(given[1].dtype))
    return of_query, home[0].transpose(0, 1), home[1].transpose(0, 1)


def _attend(
    query: Tensor, held: list[Tensor], seen: list[int] | None, causal: bool
) -> tuple[Tensor, Tensor]:
    key, value = (_heads_first(x) for x in held)
    if not causal:
        return flash_full_step(query, key, value)  # type: ignore[no-any-return]
    step = flash_step if value.shape[-1] == key.shape[-1] else flash_narrow_step
    return step(query, key, value, seen)  # type: ignore[no-any-return]


def _attend_backward(
    given: tuple[Tensor, Tensor, Tensor, Tensor],
    held: list[Tensor],
    seen: list[int] | None,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients: of queries (batch, heads, seq, width), of keys and values contiguous."""
    grad, query, out, log_sum = given
    tensors = (grad, query, *(_heads_first(x) for x in held), out, log_sum)
    if not causal:
        of_query, *others = flash_full_step_backward(*tensors)
    elif held[0].shape[-1] == held[1].shape[-1]:
        of_query, *others = flash_step_backward(*tensors, seen)
    else:
        of_query, *others = flash_narrow_step_backward(*tensors, seen)
    key, value = (x.transpose(1, 2) for x in others)
    return of_query, key, value


__all__ = ["Ring", "RingTransfer", "ring_attention"]
