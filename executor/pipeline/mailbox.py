"""A rank's messages: activations and gradients between stages.

Both sides post sends and receives in one order, by pass and then by rank. A message is a contiguous
tensor of a shape that both know from the plan.
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
"""Inputs or outputs of a chunk: activations, and outputs of other towers beside them."""
_SIDE_TAG = 1 << 29


class _PendingReceive(NamedTuple):
    """An in-flight block: its buffer, and messages to copy on arrival."""

    block: Tensor
    works: list[dist.Work]
    loose: list[tuple[MessageRows, Tensor]]


class _PendingSend(NamedTuple):
    """An in-flight outgoing message; passes count from the first ever."""

    work: dist.Work
    part: Tensor
    until: int


class Mailbox:
    """Messages of one rank.

    Args:
        channel: process group of a message.
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
        """Wait for and free messages due before the next pass.

        A peer receives one pass ahead, so a message may travel during one more pass of its sender.
        Waiting then bounds the memory of messages.
        """
        self._passes += 1
        due = [sent for sent in self._sent if sent.until <= self._passes]
        if due:
            with mark(WAIT_SEND):
                for sent in due:
                    sent.work.wait()
        self._sent = [sent for sent in self._sent if sent.until > self._passes]

    def post(self, item: Pass, route: Route) -> None:
        """Start receiving the input of ``item``, unless this rank makes it."""
        for number, part in enumerate(route.all_routes):
            self._post(item, number, part)

    def _post(self, item: Pass, number: int, route: Route) -> None:
        messages = [message for message in route.receives if message.peer != self.rank]
        if not messages:
            return
        arrival = _PendingReceive(self._empty(route.shape), [], [])
        for message in messages:
            with mark(post_receive_mark(item)):
                buffer = self._place(arrival, route, message)
                group = self.channel(item.forward, message.peer, self.rank)
                work = dist.irecv(buffer, src=message.peer, group=group, tag=_tag(item, number))
            if work is None:
                raise RuntimeError("this rank is not in the group of its messages")
            arrival.works.append(work)
        self._posted[item.message, number] = arrival

    def _empty(self, shape: tuple[int, int, int]) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def _place(self, arrival: _PendingReceive, route: Route, message: MessageRows) -> Tensor:
        if route.covers(message):
            return arrival.block
        if message.samples.size == arrival.block.shape[1] and len(message.tokens) == 1:
            return arrival.block[slice(*message.tokens[0])]
        shape = (count(message.tokens), message.samples.size, route.shape[2])
        buffer = self._empty(shape)
        arrival.loose.append((message, buffer))
        return buffer

    def receive(self, item: Pass, route: Route) -> Activations:
        """Input received for ``item``: activations, or gradients in a backward pass."""
        return tuple(self._receive(item, number) for number in range(len(route.all_routes)))

    def _receive(self, item: Pass, number: int) -> Tensor:
        key = item.message
        if (key, number) not in self._posted:
            return self._local.pop((key, number))
        arrival = self._posted.pop((key, number))
        with mark(receive_mark(item)):
            for work in arrival.works:
                work.wait()
        for message_rows, buffer in arrival.loose:
            first = 0
            for rows in _rows(arrival.block, message_rows):
                rows.copy_(buffer[first : first + rows.shape[0]])
                first += rows.shape[0]
        return arrival.block

    def send(self, item: Pass, route: Route, values: Activations, passes: int) -> None:
        """Start sending the output of ``item``, due ``passes`` passes later."""
        for number, (part, value) in enumerate(zip(route.all_routes, values, strict=True)):
            self._send(item, number, part, value, passes)

    def _send(self, item: Pass, number: int, route: Route, value: Tensor, passes: int) -> None:
        arrives_as = Pass(item.forward, route.chunk, item.micro_batch)
        for message in route.sends:
            if message.peer == self.rank:
                self._local[arrives_as, number] = value
                continue
            part = value if route.covers(message) else _packed(_rows(value, message))
            group = self.channel(item.forward, self.rank, message.peer)
            with mark(send_mark(arrives_as, message.peer)):
                tag = _tag(arrives_as, number)
                work = dist.isend(part, dst=message.peer, group=group, tag=tag)
            if work is not None:
                self._sent.append(_PendingSend(work, part, self._passes + passes))


def _rows(block: Tensor, message: MessageRows) -> list[Tensor]:
    samples = slice(*message.samples)
    return [block[slice(*span), samples] for span in message.tokens]


def _packed(parts: list[Tensor]) -> Tensor:
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)


def _tag(item: Pass, number: int) -> int:
    tag = (item.micro_batch * 4096 + item.chunk) * 2 + int(item.forward)
    return tag + number * _SIDE_TAG
