"""Runtime that executes a rank's actions in schedule order.

torch's pipeline runtime allocates receive buffers for every micro-batch up front and gathers and
reduces a whole stage at once, so zero2 and zero3 inside a pipeline would not match the plan, and
its stages have one width. Here a pass's buffer is allocated one pass ahead, so that the message
overlaps compute, and lives until its backward.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    """Feeds gradients from the next stage into the chunk's outputs."""

    def __init__(self) -> None:
        self.grads: Activations = ()


class _FreeOutputs(Function):
    """End of a chunk: frees the outputs' storage once sent."""

    @staticmethod
    def forward(ctx: Any, backward_hook: _BackwardHook, *outs: Tensor) -> Tensor:
        ctx.backward_hook = backward_hook
        return outs[0].new_empty(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        received, ctx.backward_hook.grads = ctx.backward_hook.grads, ()
        return (None, *received)


@dataclass
class _InFlight:
    """State of a forward pass, kept for its backward pass."""

    inputs: Activations | None
    output: Tensor
    backward_hook: _BackwardHook | None


@dataclass
class ChunkPort:
    """One chunk of this stage with its routes.

    Routes are None at the model's ends. ``run(inputs, micro_batch)`` computes the chunk;
    ``around_backward(pass, last)`` surrounds its backward, or its first part, and
    ``end_backward(pass, last)`` follows its message; ``weights(micro_batch, last)`` is the second
    part.
    """

    run: Callable[[Activations | None, int], Activations]
    around_backward: Callable[[Pass, bool], AbstractContextManager[None]]
    end_backward: Callable[[Pass, bool], None]
    weights: Callable[[int, bool], None]
    source: Route | None
    target: Route | None
    in_flight: dict[int, _InFlight] = field(default_factory=dict)

    def route_in(self, forward: bool) -> Route | None:
        """Route of a pass's input."""
        return self.source if forward else self.target

    def route_out(self, forward: bool) -> Route | None:
        """Route of a pass's output."""
        return self.target if forward else self.source


class PassHooks(Protocol):
    """What is told of the passes of a rank."""

    def begin_pass(self, item: Pass) -> None:
        """Called before a pass."""

    def end_pass(self, item: Pass) -> None:
        """Called after it."""


class PipelineRuntime:
    """Runs the actions of a rank.

    Args:
        order: its passes, from ``spec.plan.Program.passes``.
        until: last pass of each send buffer, from ``spec.plan.send_buffers``.
        on_pass: called at the begin and end of each.
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
        on_pass: PassHooks,
    ) -> None:
        ends = [(forward, chunk) for chunk in range(len(ports)) for forward in (True, False)]
        receives = {end for end in ends if ports[end[1]].route_in(end[0]) is not None}
        sends = {end for end in ends if ports[end[1]].route_out(end[0]) is not None}
        self.ports = ports
        self.actions = stage_actions(order, receives, sends, until)
        self.mailbox = Mailbox(rank, channel, dtype, device)
        self.device = device
        self._on_pass = on_pass
        self._received: dict[Pass, Activations] = {}
        self._outputs: dict[Pass, Activations] = {}
        self._now: Pass | None = None

    def step(self) -> Tensor:
        """Run all actions; return this stage's summed losses (0 without head)."""
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
        item, name = action.item, pass_mark(action.item)
        if item != self._now:
            self._now = item
            PROGRESS.mark(name)
        with mark(name):
            if action.kind == "receive":
                self._received[item] = self.mailbox.receive(item, self._route_in(item))
            elif action.kind == "send":
                self.mailbox.send(
                    item, self._route_out(item), self._outputs.pop(item), action.passes
                )
            else:
                self.compute(action, loss)

    def compute(self, action: Action, loss: Tensor) -> None:
        """A forward or backward pass, or the end of one, without its messages."""
        item = action.item
        if action.kind == "end_backward":
            self.ports[item.chunk].end_backward(item, action.reduces)
            self._on_pass.end_pass(item)
            return
        self._on_pass.begin_pass(item)
        if item.forward:
            self._forward(item, loss)
        elif item.part == "weight":
            self.ports[item.chunk].weights(item.micro_batch, action.reduces)
        else:
            self._backward(item, action.reduces)
            return
        self._on_pass.end_pass(item)

    def _forward(self, item: Pass, loss: Tensor) -> None:
        port = self.ports[item.chunk]
        inputs = self._received.pop(item, None)
        for value in inputs or ():
            value.requires_grad_(True)
        outs = port.run(inputs, item.micro_batch)
        if port.target is None:
            port.in_flight[item.micro_batch] = _InFlight(inputs, outs[0], None)
            loss += outs[0].detach()
            return
        backward_hook = _BackwardHook()
        output: Tensor = _FreeOutputs.apply(backward_hook, *outs)  # type: ignore[no-untyped-call]
        port.in_flight[item.micro_batch] = _InFlight(inputs, output, backward_hook)
        self._outputs[item] = tuple(out.detach() for out in outs)

    def _backward(self, item: Pass, reduces: bool) -> None:
        port = self.ports[item.chunk]
        flight = port.in_flight.pop(item.micro_batch)
        if flight.backward_hook is not None:
            flight.backward_hook.grads = self._received.pop(item)
        with port.around_backward(item, reduces):
            flight.output.backward()  # type: ignore[no-untyped-call]
        if flight.inputs is not None:
            grads = tuple(value.grad for value in flight.inputs if value.grad is not None)
            if len(grads) < len(flight.inputs):
                raise RuntimeError("no gradient reached the start of the stage")
            self._outputs[item] = grads

    def _route_in(self, item: Pass) -> Route:
        return _require(self.ports[item.chunk].route_in(item.forward))

    def _route_out(self, item: Pass) -> Route:
        return _require(self.ports[item.chunk].route_out(item.forward))


def _require(route: Route | None) -> Route:
    if route is None:
        raise RuntimeError("a message at the end of the model")
    return route
