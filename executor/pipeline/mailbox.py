"""A rank's messages: rows of activations and gradients to and from ranks of other stages.

Sends and receives are posted in one order on both sides: pass by pass, and inside a pass by
rank. A message is a contiguous tensor of a shape that both sides know from the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ...kernels.marks import mark
from ...spec.parallel.sequence_partition import count
from ...spec.report.trace_marks import WAIT_SEND, post_receive_mark, receive_mark, send_mark
from ...spec.schedules.stage_order import Pass
from .routes import MessageRows, Route

ChannelLookup = Callable[[bool, int, int], dist.ProcessGroup]
"""``channel(forward, source, target)``: the process group of messages between two ranks."""


Activations = tuple[Tensor, ...]
"""What a chunk gets or makes: activations, and outputs of other towers that travel along."""
_SIDE_TAG = 1 << 29


class _PendingReceive(NamedTuple):
    """A block under way: its buffer, and pieces that need to be copied into it once there."""

    whole: Tensor
    works: list[dist.Work]
    loose: list[tuple[MessageRows, Tensor]]


class _PendingSend(NamedTuple):
    """A message on its way out, held until it is gone; counted from the first pass ever."""

    work: dist.Work
    part: Tensor
    until: int


class Mailbox:
    """Messages of one rank.

    Args:
        rank: this rank.
        channel: gives the process group of a message.
        dtype: of activations.
        device: of activations.
    """

    def __init__(
        self, rank: int, channel: ChannelLookup, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.rank = rank
        self.channel = channel
        self.dtype = dtype
        self.device = device
        self._passes = 0
        self._sent: list[_PendingSend] = []
        self._posted: dict[tuple[Pass, int], _PendingReceive] = {}
        self._local: dict[tuple[Pass, int], Tensor] = {}

    def wait_sent(self) -> None:
        """A pass begins: wait for the messages that must be gone before it, and let them go.

        A peer starts to receive one pass ahead, so a message may travel during one more pass
        of its sender. Waiting then bounds the memory of messages.
        """
        self._passes += 1
        due = [sent for sent in self._sent if sent.until <= self._passes]
        if due:
            with mark(WAIT_SEND):
                for sent in due:
                    sent.work.wait()
        self._sent = [sent for sent in self._sent if sent.until > self._passes]

    def post(self, item: Pass, route: Route) -> None:
        """Start receiving what ``item`` needs, unless this rank makes it itself."""
        for number, part in enumerate(route.all_routes):
            self._post(item, number, part)

    def _post(self, item: Pass, number: int, route: Route) -> None:
        pieces = [piece for piece in route.receives if piece.peer != self.rank]
        if not pieces:
            return
        arrival = _PendingReceive(self._empty(route.shape), [], [])
        for piece in pieces:
            with mark(post_receive_mark(item)):
                buffer = self._place(arrival, route, piece)
                group = self.channel(item.forward, piece.peer, self.rank)
                work = dist.irecv(buffer, src=piece.peer, group=group, tag=_tag(item, number))
            if work is None:
                raise RuntimeError("this rank is not in the group of its messages")
            arrival.works.append(work)
        self._posted[item.message, number] = arrival

    def _empty(self, shape: tuple[int, int, int]) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def _place(self, arrival: _PendingReceive, route: Route, piece: MessageRows) -> Tensor:
        """Room for a piece: its place in the block where that is contiguous."""
        if route.covers(piece):
            return arrival.whole
        if piece.samples.size == arrival.whole.shape[1] and len(piece.tokens) == 1:
            return arrival.whole[slice(*piece.tokens[0])]
        shape = (count(piece.tokens), piece.samples.size, route.shape[2])
        buffer = self._empty(shape)
        arrival.loose.append((piece, buffer))
        return buffer

    def receive(self, item: Pass, route: Route) -> Activations:
        """What arrived for ``item``: activations, or their gradients in a backward pass."""
        return tuple(self._receive(item, number) for number in range(len(route.all_routes)))

    def _receive(self, item: Pass, number: int) -> Tensor:
        message = item.message
        if (message, number) not in self._posted:
            return self._local.pop((message, number))
        arrival = self._posted.pop((message, number))
        with mark(receive_mark(item)):
            for work in arrival.works:
                work.wait()
        for piece, buffer in arrival.loose:
            first = 0
            for rows in _rows(arrival.whole, piece):
                rows.copy_(buffer[first : first + rows.shape[0]])
                first += rows.shape[0]
        return arrival.whole

    def send(self, item: Pass, route: Route, values: Activations, passes: int) -> None:
        """Start sending what ``item`` made; it must be gone before the pass ``passes`` later."""
        for number, (part, value) in enumerate(zip(route.all_routes, values, strict=True)):
            self._send(item, number, part, value, passes)

    def _send(self, item: Pass, number: int, route: Route, value: Tensor, passes: int) -> None:
        arrives_as = Pass(item.forward, route.chunk, item.micro_batch)
        for piece in route.sends:
            if piece.peer == self.rank:
                self._local[arrives_as, number] = value
                continue
            part = value if route.covers(piece) else _packed(_rows(value, piece))
            group = self.channel(item.forward, self.rank, piece.peer)
            with mark(send_mark(arrives_as, piece.peer)):
                tag = _tag(arrives_as, number)
                work = dist.isend(part, dst=piece.peer, group=group, tag=tag)
            if work is not None:
                self._sent.append(_PendingSend(work, part, self._passes + passes))


def _rows(block: Tensor, piece: MessageRows) -> list[Tensor]:
    """A piece of a block, one part for each of its spans of tokens."""
    samples = slice(*piece.samples)
    return [block[slice(*span), samples] for span in piece.tokens]


def _packed(parts: list[Tensor]) -> Tensor:
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)


def _tag(item: Pass, number: int) -> int:
    """A message is told by its direction, the receiving chunk, the micro-batch and its part."""
    own = (item.micro_batch * 4096 + item.chunk) * 2 + int(item.forward)
    return own + number * _SIDE_TAG
