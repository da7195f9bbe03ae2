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

from ..kernels.marks import mark
from ..spec.marks import WAIT_SEND, post_receive_mark, receive_mark, send_mark
from ..spec.schedule import Pass
from .routes import Piece, Route

WireOf = Callable[[bool, int, int], dist.ProcessGroup]
"""``wire(forward, source, target)``: the process group of the messages from a rank to another."""


Activations = tuple[Tensor, ...]
"""What a chunk gets or makes: activations, and outputs of other towers that travel along."""
_BESIDE_TAG = 1 << 29


class _Arrival(NamedTuple):
    """A block under way: its buffer, and pieces that need to be copied into it once there."""

    whole: Tensor
    works: list[dist.Work]
    loose: list[tuple[Piece, Tensor]]


class Mailbox:
    """Messages of one rank.

    Args:
        rank: this rank.
        wire: gives the process group of a message.
        dtype: of activations.
        device: of activations.
    """

    def __init__(self, rank: int, wire: WireOf, dtype: torch.dtype, device: torch.device) -> None:
        self.rank = rank
        self.wire = wire
        self.dtype = dtype
        self.device = device
        self._sent: list[tuple[dist.Work, Tensor]] = []
        self._sends: list[tuple[dist.Work, Tensor]] = []
        self._posted: dict[tuple[Pass, int], _Arrival] = {}
        self._local: dict[tuple[Pass, int], Tensor] = {}

    def let_go(self) -> None:
        """Wait for the messages of the pass before the last one, and let them go.

        A peer starts to receive one pass ahead, so a message may travel during one more pass
        of its sender. Waiting then bounds the memory of messages.
        """
        if self._sent:
            with mark(WAIT_SEND):
                for work, _ in self._sent:
                    work.wait()
        self._sent, self._sends = self._sends, []

    def post(self, item: Pass, route: Route) -> None:
        """Start receiving what ``item`` needs, unless this rank makes it itself."""
        for number, part in enumerate(route.every):
            self._post(item, number, part)

    def _post(self, item: Pass, number: int, route: Route) -> None:
        pieces = [piece for piece in route.receives if piece.peer != self.rank]
        if not pieces:
            return
        arrival = _Arrival(self._empty(route.shape), [], [])
        for piece in pieces:
            with mark(post_receive_mark(item)):
                buffer = self._place(arrival, route, piece)
                group = self.wire(item.forward, piece.peer, self.rank)
                work = dist.irecv(buffer, src=piece.peer, group=group, tag=_tag(item, number))
            if work is None:
                raise RuntimeError("this rank is not in the group of its messages")
            arrival.works.append(work)
        self._posted[item, number] = arrival

    def _empty(self, shape: tuple[int, int, int]) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def _place(self, arrival: _Arrival, route: Route, piece: Piece) -> Tensor:
        """Room for a piece: its place in the block where that is contiguous."""
        if route.covers(piece):
            return arrival.whole
        if piece.samples.size == arrival.whole.shape[1]:
            return arrival.whole[piece.tokens.first : piece.tokens.end]
        shape = (piece.tokens.size, piece.samples.size, route.shape[2])
        buffer = self._empty(shape)
        arrival.loose.append((piece, buffer))
        return buffer

    def receive(self, item: Pass, route: Route) -> Activations:
        """What arrived for ``item``: activations, or their gradients in a backward pass."""
        return tuple(self._receive(item, number) for number in range(len(route.every)))

    def _receive(self, item: Pass, number: int) -> Tensor:
        if (item, number) not in self._posted:
            return self._local.pop((item, number))
        arrival = self._posted.pop((item, number))
        with mark(receive_mark(item)):
            for work in arrival.works:
                work.wait()
        for piece, buffer in arrival.loose:
            _rows(arrival.whole, piece).copy_(buffer)
        return arrival.whole

    def send(self, item: Pass, route: Route, values: Activations) -> None:
        """Start sending what ``item`` made."""
        for number, (part, value) in enumerate(zip(route.every, values, strict=True)):
            self._send(item, number, part, value)

    def _send(self, item: Pass, number: int, route: Route, value: Tensor) -> None:
        arrives_as = Pass(item.forward, route.chunk, item.micro_batch)
        for piece in route.sends:
            if piece.peer == self.rank:
                self._local[arrives_as, number] = value
                continue
            part = value if route.covers(piece) else _rows(value, piece).contiguous()
            group = self.wire(item.forward, self.rank, piece.peer)
            with mark(send_mark(arrives_as, piece.peer)):
                tag = _tag(arrives_as, number)
                work = dist.isend(part, dst=piece.peer, group=group, tag=tag)
            if work is not None:
                self._sends.append((work, part))


def _rows(block: Tensor, piece: Piece) -> Tensor:
    return block[piece.tokens.first : piece.tokens.end, piece.samples.first : piece.samples.end]


def _tag(item: Pass, number: int) -> int:
    """A message is told by its direction, the receiving chunk, the micro-batch and its part."""
    own = (item.micro_batch * 4096 + item.chunk) * 2 + int(item.forward)
    return own + number * _BESIDE_TAG
