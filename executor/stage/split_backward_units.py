"""FSDP units under schedules that split the backward.

fully_shard ends a unit's backward at its input gradient: it frees gathered parameters, and casts,
keeps or reduces gradients. A split backward has no weight gradients there yet. So after the input
gradient, parameters gathered for each use are freed; the rest follows the weight gradients, which
need no parameters. Gradients of norms, tables and biases of row-split layers come with the input
gradient. Where each micro-batch's gradients are reduced or cast separately, these are set aside,
because the next micro-batch's input gradient may precede this one's weight gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from .. import torch_compat
from ..models.deferred_gradients import add_gradients


class SplitBackwardUnit:
    """A chunk's unit whose backward may come in two parts.

    Args:
        unit: fully_shard's unit of one or more layers.
        gathers_each_use: True if parameters are freed after each use.
        resets_gradients: True if a micro-batch starts with empty gradients.
    """

    def __init__(self, unit: FSDPModule, gathers_each_use: bool, resets_gradients: bool) -> None:
        self._frees = gathers_each_use
        self._resets_gradients = resets_gradients
        self._micro_batch: int | None = None
        self._set_aside: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self._endings: list[Callable[..., None]] = []
        for group in torch_compat.parameter_groups(unit):
            self._endings.append(group.post_backward)
            group.post_backward = partial(self._end, group, group.post_backward)

    def begin(self, micro_batch: int) -> None:
        """Make the next backward this micro-batch's input gradient alone."""
        self._micro_batch = micro_batch

    def end_input_gradient(self) -> None:
        """Mark the input gradient as done."""
        self._micro_batch = None

    def finish(self, micro_batch: int) -> None:
        """Reduce or keep a micro-batch's complete gradients, as armed."""
        with torch.no_grad():
            for parameter, gradient in self._set_aside.pop(micro_batch, ()):
                add_gradients([parameter], [gradient])
            for end in reversed(self._endings):
                end()

    def _end(self, group: Any, end_whole: Callable[..., None], *arguments: Any) -> None:
        """Called by fully_shard, perhaps repeatedly, after the unit's backward."""
        if self._micro_batch is None:
            end_whole(*arguments)
            return
        torch_compat.mark_backward_done(group)
        if self._frees:
            group.reshard()
        if self._resets_gradients:
            aside = self._set_aside.setdefault(self._micro_batch, [])
            for parameter in torch_compat.unsharded_parameters(group):
                if parameter.grad is not None:
                    aside.append((parameter, parameter.grad))
                    parameter.grad = None
