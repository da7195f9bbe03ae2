"""The run of cpu_offload: states of blocks in the host's memory.

The optimizer updates the host's copy of a weight, which checkpoints save. Clipped gradients are
copied down layer by layer; updated weights come back after the optimizer, or, where parameters are
offloaded too, before each gather, whose shards live on the device only until it is filled.

On a core both tiers share one memory; copies are made all the same, so that work and live bytes
match an accelerator's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ...spec.report.trace_marks import technique_mark
from ...spec.techniques.cpu_offload import NAME, offloads_parameters
from ..host.parameter_fetch import device_copy, fetch_for_gathers
from ..host.tier import host_copy, host_like
from ..stage.local_parameters import LocalParameter
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun


class CpuOffloadHooks(TechniqueHooks):
    """Copies of this rank's offloaded states between device and host."""

    def __init__(self, context: TechniqueContext) -> None:
        self._context = context
        self._device = context.device
        self._relocated: dict[int, list[LocalParameter]] = {
            layer: [] for layer in context.strategies
        }
        self._updating = False

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
        if self._fetches(layer) and len(parameters) == len(self._context.parameters[layer]):
            fetch_for_gathers(self._context.units[layer], parameters, technique_mark(NAME))
        return moved

    def _fetches(self, layer: int) -> bool:
        return offloads_parameters(self._context.strategies[layer])

    def relocated_changed(self) -> None:
        """Copy changed host weights to the device, as after a restart."""
        self._copy_to_device()

    def gradients_final(self) -> None:
        """Copy gradients to the host for the update."""
        for parameters in self._with_data():
            gradients = [_gradient(parameter) for parameter in parameters]
            targets = [_host_gradient(parameter) for parameter in parameters]
            torch._foreach_copy_(targets, gradients, non_blocking=True)
        self._updating = True
        _finish(self._device)

    def end_step(self) -> None:
        """Copy updated weights to the device, unless the step was skipped."""
        if self._updating:
            self._copy_to_device()
        self._updating = False

    def _copy_to_device(self) -> None:
        with torch.no_grad():
            for parameters in self._with_data():
                if self._fetches(parameters[0].layer):
                    continue  # before the next gather
                targets = [device_copy(parameter) for parameter in parameters]
                torch._foreach_copy_(targets, [p.data for p in parameters], non_blocking=True)

    def _with_data(self) -> Iterator[list[LocalParameter]]:
        for parameters in self._relocated.values():
            if filled := [parameter for parameter in parameters if parameter.data.numel()]:
                yield filled


def _gradient(parameter: LocalParameter) -> Tensor:
    if parameter.grad is None:
        raise RuntimeError(f"{parameter.name} has no gradient")
    return parameter.grad


def _host_gradient(parameter: LocalParameter) -> Tensor:
    if parameter.host_gradient is None:
        raise RuntimeError(f"{parameter.name} has no gradient on the host")
    return parameter.host_gradient


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


TECHNIQUE = TechniqueRun(name=NAME, start=CpuOffloadHooks)
