"""Running a rank's actions in the order of its stage's schedule.

torch's own pipeline runtime is not used: it allocates receive buffers for every micro-batch
up front and gathers and reduces a whole stage at once, so zero2 and zero3 inside a pipeline
would not be what the plan says, and its stages have one width. Here the buffer of a pass is
allocated one pass ahead, so that the message travels while the stage computes, and lives until
its backward.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ...kernels.marks import mark
from ...spec.report.trace_marks import pass_mark
from ...spec.schedules.stage_order import Pass
from ..launch.progress import PROGRESS
from .actions import Action, stage_actions
from .mailbox import Activations, ChannelLookup, Mailbox
from .routes import Route


class _BackwardHook:
    """Carries the gradients that arrive from the next stage to the chunk's outputs."""

    def __init__(self) -> None:
        self.grads: Activations = ()


class _FreeOutputs(Function):
    """The end of a chunk: lets the outputs' storage go once they are sent."""

    @staticmethod
    def forward(ctx: Any, backward_hook: _BackwardHook, *outs: Tensor) -> Tensor:
        ctx.backward_hook = backward_hook
        return outs[0].new_empty(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        arrived, ctx.backward_hook.grads = ctx.backward_hook.grads, ()
        return (None, *arrived)


@dataclass
class _InFlight:
    """What a forward pass leaves for its backward pass."""

    entry: Activations | None
    exit: Tensor
    backward_hook: _BackwardHook | None


@dataclass
class ChunkPort:
    """One chunk of this stage with its routes; None at the two ends of the model.

    ``run(entry, micro_batch)`` computes the chunk; ``around_backward(pass, last)`` surrounds its
    backward, or the first part of one; ``weights(micro_batch, last)`` is the second part.
    """

    run: Callable[[Activations | None, int], Activations]
    around_backward: Callable[[Pass, bool], AbstractContextManager[None]]
    weights: Callable[[int, bool], None]
    source: Route | None
    target: Route | None
    in_flight: dict[int, _InFlight] = field(default_factory=dict)

    def route_in(self, forward: bool) -> Route | None:
        """Where what a pass needs comes from."""
        return self.source if forward else self.target

    def route_out(self, forward: bool) -> Route | None:
        """Where what a pass makes goes."""
        return self.target if forward else self.source


class PipelineRuntime:
    """Runs the actions of a rank.

    Args:
        ports: the stage's chunks.
        order: its passes, from ``spec.plan.Program.passes``.
        until: when sent messages are gone, from ``spec.message_holds.sent_until``.
        rank: this rank.
        channel: gives the process group of a message.
        dtype: of activations.
        device: of activations.
    """

    def __init__(
        self,
        ports: list[ChunkPort],
        order: tuple[Pass, ...],
        until: tuple[int, ...] | None,
        rank: int,
        channel: ChannelLookup,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        ends = [(forward, chunk) for chunk in range(len(ports)) for forward in (True, False)]
        receives = {end for end in ends if ports[end[1]].route_in(end[0]) is not None}
        sends = {end for end in ends if ports[end[1]].route_out(end[0]) is not None}
        self.ports = ports
        self.actions = stage_actions(order, receives, sends, until)
        self.mailbox = Mailbox(rank, channel, dtype, device)
        self.device = device
        self._arrived: dict[Pass, Activations] = {}
        self._made: dict[Pass, Activations] = {}
        self._now: Pass | None = None

    def step(self) -> Tensor:
        """Run all actions; the sum of this stage's losses (0 where it has no head)."""
        loss = torch.zeros((), device=self.device)
        for action in self.actions:
            if action.kind == "wait_sent":
                self.mailbox.wait_sent()
            elif action.kind == "post":
                self.mailbox.post(action.item, self._route_in(action.item))
            else:
                self._act(action, loss)
        self._now = None
        return loss

    def _act(self, action: Action, loss: Tensor) -> None:
        """An action inside a pass."""
        item, name = action.item, pass_mark(action.item)
        if item != self._now:
            self._now = item
            PROGRESS.mark(name)
        with mark(name):
            if action.kind == "receive":
                self._arrived[item] = self.mailbox.receive(item, self._route_in(item))
            elif action.kind == "send":
                self.mailbox.send(item, self._route_out(item), self._made.pop(item), action.passes)
            else:
                self.compute(action, loss)

    def compute(self, action: Action, loss: Tensor) -> None:
        """A forward or backward pass, without its messages."""
        item = action.item
        if item.forward:
            self._forward(item, loss)
        elif item.part == "weight":
            self.ports[item.chunk].weights(item.micro_batch, action.reduces)
        else:
            self._backward(item, action.reduces)

    def _forward(self, item: Pass, loss: Tensor) -> None:
        port = self.ports[item.chunk]
        entry = self._arrived.pop(item, None)
        for part in entry or ():
            part.requires_grad_(True)
        outs = port.run(entry, item.micro_batch)
        if port.target is None:
            port.in_flight[item.micro_batch] = _InFlight(entry, outs[0], None)
            loss += outs[0].detach()
            return
        backward_hook = _BackwardHook()
        leaving: Tensor = _FreeOutputs.apply(backward_hook, *outs)  # type: ignore[no-untyped-call]
        port.in_flight[item.micro_batch] = _InFlight(entry, leaving, backward_hook)
        self._made[item] = tuple(out.detach() for out in outs)

    def _backward(self, item: Pass, reduces: bool) -> None:
        port = self.ports[item.chunk]
        flight = port.in_flight.pop(item.micro_batch)
        if flight.backward_hook is not None:
            flight.backward_hook.grads = self._arrived.pop(item)
        with port.around_backward(item, reduces):
            flight.exit.backward()  # type: ignore[no-untyped-call]
        if flight.entry is not None:
            grads = tuple(part.grad for part in flight.entry if part.grad is not None)
            if len(grads) < len(flight.entry):
                raise RuntimeError("no gradient reached the start of the stage")
            self._made[item] = grads

    def _route_in(self, item: Pass) -> Route:
        return _there(self.ports[item.chunk].route_in(item.forward))

    def _route_out(self, item: Pass) -> Route:
        return _there(self.ports[item.chunk].route_out(item.forward))


def _there(route: Route | None) -> Route:
    if route is None:
        raise RuntimeError("a message at the end of the model")
    return route
