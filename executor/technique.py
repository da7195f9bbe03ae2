"""TechniqueRun: a technique's work on a rank, around layers and steps.

Every module of ``techniques`` ends in one. Its process groups are those of
``TechniqueValue.groups``, made up front from the whole plan. Its hooks do the work of its price,
item by item; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from ..kernels.dispatch import Dispatcher
from ..spec.parallel.rank_groups import RankGroup
from ..spec.plan.plan import Plan
from ..spec.schedules.passes import Pass
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

    ``replicated``: equal on every rank of ``group``. ``split``: equal parts along ``dim`` over
    ``group``. ``parameter``: sharded as that parameter. ``own``: private to each rank. No group
    means the whole stage. A checkpoint of another plan joins and cuts states by this; private state
    cannot be cut, so only the same plan restores it. A name on several stages is one state.
    """

    kind: Literal["replicated", "split", "parameter", "own"]
    group: RankGroup | None = None
    dim: int = 0
    parameter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedState:
    """A tensor that persists between steps, and its layout over ranks."""

    tensor: Tensor
    placement: Placement


class TechniqueHooks:
    """Hooks of a technique on one rank; these do nothing.

    Layers are numbered as in the plan: those of this rank whose strategies hold the technique, or
    all of its layers where the program does.
    """

    def begin_pass(self, item: Pass) -> None:
        """Called before a pass of one of this rank's chunks, in the plan's order."""

    def end_pass(self, item: Pass) -> None:
        """Called after a pass and what it reduces; its message may have left before."""

    def around_layer(self, layer: int, item: Pass) -> AbstractContextManager[None]:
        """Surround a layer's forward of a micro-batch, in its pass."""
        return nullcontext()

    def after_backward(self, layer: int, item: Pass) -> None:
        """Called at a micro-batch's gradient of the layer's input, in its pass."""

    def gradients_ready(self, layer: int) -> None:
        """Called at the layer's complete gradients, before sums over tensor-parallel ranks.

        In the last micro-batch's backward of the layer's chunk, last layer first.
        """

    def relocated(self, parameter: LocalParameter) -> LocalParameter:
        """A parameter with the tensor to optimize, if the technique keeps another.

        Called once per parameter of the technique, before there is an optimizer.
        """
        return parameter

    def relocated_changed(self) -> None:
        """Called when relocated parameters' values changed, as after a restart."""

    def begin_step(self) -> None:
        """Called before the first pass of a step."""

    def before_update(self) -> None:
        """Called at complete, unclipped gradients and known norm.

        In fp16 those of parameters on the host still have the loss scale.
        """

    def gradients_final(self) -> None:
        """Called between clipping and the optimizer, except in skipped steps.

        The host scales gradients there, after this.
        """

    def around_update(self, update: Callable[[], None], learning_rate: float) -> None:
        """Update the weights: by the optimizer's own ``update``, or in its place.

        Called once a step, after :meth:`gradients_final`, except in skipped steps. One that does
        not call ``update`` claims the optimizer among its states.
        """
        update()

    def host_updated(self, layer: int) -> None:
        """Called once the host has updated a layer's relocated parameters."""

    def end_step(self) -> None:
        """Called after the update."""

    def state(self) -> dict[str, NamedState]:
        """Tensors that persist between steps, by the technique's names."""
        return {}

    def report(self) -> dict[str, Any]:
        """JSON-ready facts about the rank's steps, for the run's result; empty: none."""
        return {}

    def close(self) -> None:
        """Free resources; no use afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueContext:
    """A rank, with the layers that hold a technique and their parameters.

    ``value``: of a program's technique, which all layers hold; None for others.
    ``modules``: of the layers; ``units``: those under fully_shard; ``streams``: those that the
    technique requested, None on cores, where work is serial; ``kernels``: the run's.
    """

    name: str
    plan: Plan
    process_groups: ProcessGroups
    device: torch.device
    seed: int
    strategies: Mapping[int, LayerStrategy]
    parameters: Mapping[int, tuple[LocalParameter, ...]]
    modules: Mapping[int, nn.Module]
    units: Mapping[int, FSDPModule]
    streams: Mapping[str, torch.cuda.Stream | None]
    kernels: Dispatcher
    value: Any = None

    def group(self, shape: RankGroup) -> dist.ProcessGroup:
        """The technique's process group of this shape on this rank."""
        return self.process_groups.technique_group(self.name, shape)

    def on(self, stream: str) -> AbstractContextManager[object]:
        """Put device work on a technique's stream; on cores it is serial."""
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
        prepare: changes a layer that holds it, between filling and sharding.
        start: the hooks on a rank of a plan that holds it anywhere.
        streams: names of device streams to make up front.
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
    """Techniques available to a run: values and runs."""

    values: Values
    runs: Runs

    def of(self, strategy: LayerStrategy) -> Runs:
        """Runs of a strategy's techniques, in their order."""
        return tuple(run for run in self.runs if run.name in strategy.techniques)

    def with_run(self, run: TechniqueRun) -> RunTechniques:
        """The same techniques, one of them run in another way."""
        return replace(self, runs=(*(own for own in self.runs if own.name != run.name), run))
