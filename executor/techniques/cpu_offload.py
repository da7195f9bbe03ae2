"""The run of cpu_offload: states of blocks in the host's memory.

The optimizer updates the host's copy of a weight, which checkpoints save. A layer's gradients are
copied down as soon as they are complete, beside the backward of the layers before; those that
ranks still sum after all passes follow with the norm. The host scales and updates layer by layer,
and a layer's weights come back while it updates the next; where parameters are offloaded too, they
come before each gather instead, whose shards live on the device only until it is filled.

On a core both tiers share one memory; copies are made all the same, so that work and live bytes
match an accelerator's, and are in line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from ...kernels.marks import mark
from ...spec.plan.relative_position_bias import TABLE
from ...spec.report.trace_marks import technique_mark
from ...spec.schedules.passes import Pass
from ...spec.techniques.cpu_offload import NAME, offloads_parameters
from ..host.parameter_fetch import device_copy, fetch_for_gathers
from ..host.tier import host_copy, host_like
from ..stage.local_parameters import LocalParameter
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun

TO_HOST, TO_DEVICE = "to_host", "to_device"


class CpuOffloadHooks(TechniqueHooks):
    """Copies of this rank's offloaded states between device and host."""

    def __init__(self, context: TechniqueContext) -> None:
        self._context = context
        self._device = context.device
        self._relocated: dict[int, list[LocalParameter]] = {
            layer: [] for layer in context.strategies
        }
        self._last = context.plan.program.schedule.microbatches - 1
        self._completes = False
        self._missing: dict[int, int] = {}
        self._copied: set[int] = set()

    def relocated(self, parameter: LocalParameter) -> LocalParameter:
        """A parameter with a host master copy and gradient buffer."""
        moved = replace(
            parameter,
            data=host_copy(parameter.data, self._device),
            device_tensor=parameter.data,
            host_gradient=host_like(parameter.data, self._device),
        )
        layer = parameter.layer
        parameters = self._relocated[layer]
        parameters.append(moved)
        if not _is_summed(moved):
            moved.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _: self._one_ready(layer)
            )
        if self._fetches(layer) and len(parameters) == len(self._context.parameters[layer]):
            fetch_for_gathers(self._context.units[layer], parameters, technique_mark(NAME))
        return moved

    def _fetches(self, layer: int) -> bool:
        return offloads_parameters(self._context.strategies[layer])

    def relocated_changed(self) -> None:
        """Copy changed host weights to the device, as after a restart."""
        for layer in self._relocated:
            self.host_updated(layer)
        self.end_step()

    def begin_step(self) -> None:
        """No gradient of this step has been copied."""
        self._copied.clear()

    def begin_pass(self, item: Pass) -> None:
        """Watch for complete gradients in a last micro-batch's backward.

        In a split one, gradients come from both parts: they are copied after it.
        """
        last = not item.forward and item.micro_batch == self._last
        self._completes = last and item.part == "whole"
        self._missing = {
            layer: sum(not _is_summed(parameter) for parameter in parameters)
            for layer, parameters in self._relocated.items()
        }

    def _one_ready(self, layer: int) -> None:
        """Called at one complete gradient of a layer, in the order of its reduction."""
        if not self._completes:
            return
        self._missing[layer] -= 1
        if not self._missing[layer]:
            with mark(technique_mark(NAME)):
                self.gradients_ready(layer)

    def gradients_ready(self, layer: int) -> None:
        """Copy a layer's complete gradients to the host, once."""
        if layer not in self._copied:
            self._copied.add(layer)
            self._copy_gradients(layer, summed=False)

    def gradients_final(self) -> None:
        """Copy the gradients that ranks have summed since, and wait for all copies."""
        for layer in self._relocated:
            self._copy_gradients(layer, summed=True)
        stream = self._context.streams[TO_HOST]
        if stream is not None:
            stream.synchronize()

    def host_updated(self, layer: int) -> None:
        """Copy a layer's updated weights to the device, unless its gathers do."""
        parameters = _filled(self._relocated[layer])
        if not parameters or self._fetches(layer):
            return
        with torch.no_grad(), self._beside(TO_DEVICE):
            targets = [device_copy(parameter) for parameter in parameters]
            torch._foreach_copy_(targets, [p.data for p in parameters], non_blocking=True)

    def end_step(self) -> None:
        """The next step's work follows the copies to the device."""
        stream = self._context.streams[TO_DEVICE]
        if stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(stream)

    def _copy_gradients(self, layer: int, summed: bool) -> None:
        parameters = _filled(p for p in self._relocated[layer] if _is_summed(p) == summed)
        if not parameters:
            return
        with torch.no_grad(), self._beside(TO_HOST):
            targets = [_host_gradient(parameter) for parameter in parameters]
            gradients = [_gradient(parameter) for parameter in parameters]
            torch._foreach_copy_(targets, gradients, non_blocking=True)

    @contextmanager
    def _beside(self, name: str) -> Iterator[None]:
        """Put copies on a stream, after the work that is queued now."""
        stream = self._context.streams[name]
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(self._device))
        with self._context.on(name):
            yield


def _is_summed(parameter: LocalParameter) -> bool:
    """True if a gradient is summed over ranks after all passes, or may be, as that of a table."""
    return parameter.partial_gradient or parameter.spec.name == TABLE


def _filled(parameters: Iterable[LocalParameter]) -> list[LocalParameter]:
    return [parameter for parameter in parameters if parameter.data.numel()]


def _gradient(parameter: LocalParameter) -> Tensor:
    if parameter.grad is None:
        raise RuntimeError(f"{parameter.name} has no gradient")
    return parameter.grad


def _host_gradient(parameter: LocalParameter) -> Tensor:
    if parameter.host_gradient is None:
        raise RuntimeError(f"{parameter.name} has no gradient on the host")
    return parameter.host_gradient


TECHNIQUE = TechniqueRun(name=NAME, start=CpuOffloadHooks, streams=(TO_HOST, TO_DEVICE))
