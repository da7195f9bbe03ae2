"""TechniqueRun: the work of a technique on a rank, around layers and steps.

A module of ``techniques`` ends in one. Its process groups are those of ``TechniqueValue.groups``,
made up front from the whole plan. Its hooks do the work of its price, item by item; tests hold one
against the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ..spec.parallel.rank_groups import RankGroup
from ..spec.plan.plan import Plan
from ..spec.strategy import LayerStrategy
from ..spec.technique import Values

if TYPE_CHECKING:
    from .groups.process_groups import ProcessGroups
    from .models.layer import LayerModule
    from .stage.local_parameters import LocalParameter
    from .stage.options import BuildOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Layout of a state over ranks.

    ``replicated``: equal on every rank of ``group``. ``split``: in equal parts along ``dim`` over
    the ranks of ``group``. ``parameter``: cut as the parameter of the name ``parameter`` is.
    ``own``: each rank has its own. No group is the whole stage. A checkpoint of another plan's run
    joins and cuts states by this; a rank's own cannot be cut, so only the same plan takes it back.
    States of one name on several stages are one state.
    """

    kind: Literal["replicated", "split", "parameter", "own"]
    group: RankGroup | None = None
    dim: int = 0
    parameter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedState:
    """A tensor that lives from step to step, and its layout over ranks."""

    tensor: Tensor
    placement: Placement


class TechniqueHooks:
    """Hooks of a technique on one rank; these do nothing.

    Layers are numbered as in the plan, and are those of this rank whose strategies hold the
    technique.
    """

    def around_layer(self, layer: int) -> AbstractContextManager[None]:
        """Entered before a layer's forward of a micro-batch, left after it."""
        return nullcontext()

    def after_backward(self, layer: int) -> None:
        """A micro-batch's gradient of the layer's input is known."""

    def gradients_ready(self, layer: int) -> None:
        """The layer's gradients are complete, but for sums over tensor-parallel ranks.

        Called in the last micro-batch's backward of the layer's chunk, last layer first.
        """

    def relocated(self, parameter: LocalParameter) -> LocalParameter:
        """A parameter with the tensor to optimize, where the technique keeps another.

        Asked once of each of the technique's parameters, before there is an optimizer.
        """
        return parameter

    def relocated_changed(self) -> None:
        """Numbers of relocated parameters changed, as after a restart."""

    def begin_step(self) -> None:
        """Before the first pass of a step."""

    def before_update(self) -> None:
        """All gradients are complete and clipped by nothing yet; the norm is known."""

    def gradients_final(self) -> None:
        """Gradients are clipped, and the optimizer is next; not called where a step is skipped."""

    def end_step(self) -> None:
        """After the update."""

    def state(self) -> dict[str, NamedState]:
        """Tensors that live from step to step, by names of the technique."""
        return {}

    def close(self) -> None:
        """No later use is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueContext:
    """A rank, with the layers that hold a technique and their parameters.

    ``units`` are of the layers that fully_shard wraps; ``streams`` are those that the technique
    asked for, None on cores, where work is serial.
    """

    name: str
    plan: Plan
    process_groups: ProcessGroups
    device: torch.device
    seed: int
    strategies: Mapping[int, LayerStrategy]
    parameters: Mapping[int, tuple[LocalParameter, ...]]
    units: Mapping[int, FSDPModule]
    streams: Mapping[str, torch.cuda.Stream | None]

    def group(self, shape: RankGroup) -> dist.ProcessGroup:
        """The technique's own process group of this shape that holds this rank."""
        return self.process_groups.technique_group(self.name, shape)

    def on(self, stream: str) -> AbstractContextManager[object]:
        """Inside, device work is put on one of the technique's streams; on cores it is serial."""
        chosen = self.streams[stream]
        return nullcontext() if chosen is None else torch.cuda.stream(chosen)


def _prepare_nothing(module: LayerModule, strategy: LayerStrategy, options: BuildOptions) -> None:
    return None


def _start_nothing(context: TechniqueContext) -> TechniqueHooks:
    return TechniqueHooks()


def _hides_no_bytes(plan: Plan, device: torch.device) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueRun:
    """The run of a technique.

    Attributes:
        name: the technique.
        prepare: changes a layer whose strategy holds it, after its weights are filled and before
            they are sharded.
        start: the hooks on a rank of a plan that holds it anywhere.
        streams: names of device streams that it needs, made up front.
        hides_bytes: True if a plan's live bytes cannot be followed on a device.
    """

    name: str
    prepare: Callable[[LayerModule, LayerStrategy, BuildOptions], None] = _prepare_nothing
    start: Callable[[TechniqueContext], TechniqueHooks] = _start_nothing
    streams: tuple[str, ...] = ()
    hides_bytes: Callable[[Plan, torch.device], bool] = _hides_no_bytes


Runs = tuple[TechniqueRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTechniques:
    """The techniques that a run may use: their values and their runs."""

    values: Values
    runs: Runs

    def of(self, strategy: LayerStrategy) -> Runs:
        """The runs of the techniques of a layer's strategy, in their order."""
        return tuple(run for run in self.runs if run.name in strategy.techniques)
