"""Running a stage's passes in schedule order and moving activations between stages.

torch's own pipeline runtime is not used: it allocates receive buffers for every micro-batch
up front and gathers and reduces a whole stage at once, so zero2 and zero3 inside a pipeline
would not be what the plan says. Here the buffer of a pass is allocated one pass ahead, so that
the message travels while the stage computes, and lives until its backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ..kernels.marks import mark
from ..spec.marks import WAIT_SEND, pass_mark, post_receive_mark, receive_mark, send_mark
from ..spec.schedule import Pass
from .progress import PROGRESS

WireOf = Callable[[bool, int, int], dist.ProcessGroup]
"""``wire(forward, source, target)``: the process group of the messages from a rank to another."""


class _Gate:
    """Carries the gradient that arrives from the next stage to the chunk's output."""

    def __init__(self) -> None:
        self.grad: Tensor | None = None


class _Exit(Function):
    """The end of a chunk: lets the output's storage go once it is sent."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, gate: _Gate) -> Tensor:
        ctx.gate = gate
        return out.new_empty(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:
        grad = ctx.gate.grad
        ctx.gate.grad = None
        return grad, None


@dataclass
class _InFlight:
    """What a forward pass leaves for its backward pass."""

    entry: Tensor | None
    exit: Tensor
    gate: _Gate | None


@dataclass(frozen=True)
class Link:
    """Where a chunk's data comes from or goes to: a peer rank, or a chunk of this rank.

    ``chunk`` is the chunk on the other side; ``shape`` the (seq, batch, hidden) that crosses.
    """

    peer: int
    chunk: int
    shape: tuple[int, int, int]


@dataclass
class ChunkPort:
    """One chunk of this stage with its links; None at the two ends of the model.

    ``run(entry, micro_batch)`` computes the chunk; ``before_backward(last)`` arms its units.
    """

    run: Callable[[Tensor | None, int], Tensor]
    before_backward: Callable[[bool], None]
    source: Link | None
    target: Link | None
    in_flight: dict[int, _InFlight] = field(default_factory=dict)


class PipelineRuntime:
    """Runs the passes of a stage.

    Args:
        ports: the stage's chunks.
        order: its passes, from ``spec.schedule.stage_order``.
        rank: this rank.
        wire: gives the process group of a message.
        dtype: of activations.
        device: of activations.
    """

    def __init__(
        self,
        ports: list[ChunkPort],
        order: tuple[Pass, ...],
        rank: int,
        wire: WireOf,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.ports = ports
        self.order = order
        self.rank = rank
        self.wire = wire
        self.dtype = dtype
        self.device = device
        self._last = {p.chunk: p.micro_batch for p in order if not p.forward}
        self._sent: list[tuple[dist.Work, Tensor]] = []
        self._sends: list[tuple[dist.Work, Tensor]] = []
        self._posted: dict[Pass, tuple[dist.Work, Tensor]] = {}
        self._local: dict[Pass, Tensor] = {}

    def step(self) -> Tensor:
        """Run all passes; the sum of this stage's losses (0 where it has no head)."""
        loss = torch.zeros((), device=self.device)
        self._post_receive(self.order[0])
        for item, following in zip(self.order, [*self.order[1:], None], strict=True):
            self._finish_sends()
            if following is not None:
                self._post_receive(following)
            name = pass_mark(item)
            PROGRESS.mark(name)
            with mark(name):
                if item.forward:
                    self._forward(item, loss)
                else:
                    self._backward(item)
        self._finish_sends()
        self._finish_sends()
        return loss

    def _finish_sends(self) -> None:
        """Wait for the messages of the pass before the last one, and let them go.

        A peer starts to receive one pass ahead, so a message may travel during one more pass
        of its sender. Waiting then bounds the memory of messages, and no schedule of
        ``spec.schedule`` waits for itself that way.
        """
        if self._sent:
            with mark(WAIT_SEND):
                for work, _ in self._sent:
                    work.wait()
        self._sent, self._sends = self._sends, []

    def _forward(self, item: Pass, loss: Tensor) -> None:
        port = self.ports[item.chunk]
        entry = self._take(item)
        if entry is not None:
            entry.requires_grad_(True)
        out = port.run(entry, item.micro_batch)
        if port.target is None:
            port.in_flight[item.micro_batch] = _InFlight(entry, out, None)
            loss += out.detach()
            return
        gate = _Gate()
        leaving: Tensor = _Exit.apply(out, gate)  # type: ignore[no-untyped-call]
        port.in_flight[item.micro_batch] = _InFlight(entry, leaving, gate)
        self._send(item, port.target, out.detach())

    def _backward(self, item: Pass) -> None:
        port = self.ports[item.chunk]
        flight = port.in_flight.pop(item.micro_batch)
        if flight.gate is not None:
            flight.gate.grad = self._take(item)
        port.before_backward(self._last[item.chunk] == item.micro_batch)
        flight.exit.backward()  # type: ignore[no-untyped-call]
        if flight.entry is not None and port.source is not None:
            grad = flight.entry.grad
            if grad is None:
                raise RuntimeError("no gradient reached the start of the stage")
            self._send(item, port.source, grad)

    def _link_into(self, item: Pass) -> Link | None:
        port = self.ports[item.chunk]
        return port.source if item.forward else port.target

    def _post_receive(self, item: Pass) -> None:
        """Start receiving what ``item`` needs, unless this rank makes it itself."""
        link = self._link_into(item)
        if link is None or link.peer == self.rank:
            return
        group = self.wire(item.forward, link.peer, self.rank)
        with mark(post_receive_mark(item)):
            buffer = torch.empty(link.shape, dtype=self.dtype, device=self.device)
            work = dist.irecv(buffer, src=link.peer, group=group, tag=_tag(item))
        if work is None:
            raise RuntimeError("this rank is not in the group of its messages")
        self._posted[item] = (work, buffer)

    def _take(self, item: Pass) -> Tensor | None:
        """What arrived for ``item``: an activation, or a gradient in a backward pass."""
        link = self._link_into(item)
        if link is None:
            return None
        if link.peer == self.rank:
            return self._local.pop(item)
        work, buffer = self._posted.pop(item)
        with mark(receive_mark(item)):
            work.wait()
        return buffer

    def _send(self, item: Pass, link: Link, value: Tensor) -> None:
        arrives_as = Pass(item.forward, link.chunk, item.micro_batch)
        if link.peer == self.rank:
            self._local[arrives_as] = value
            return
        group = self.wire(item.forward, self.rank, link.peer)
        with mark(send_mark(arrives_as, link.peer)):
            work = dist.isend(value, dst=link.peer, group=group, tag=_tag(arrives_as))
        if work is not None:
            self._sends.append((work, value))


def _tag(item: Pass) -> int:
    """A message is told by its direction, the receiving chunk and the micro-batch."""
    return (item.micro_batch * 4096 + item.chunk) * 2 + int(item.forward)
