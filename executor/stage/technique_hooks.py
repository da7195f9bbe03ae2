"""Hooks of all techniques on one rank, called together.

Their work is marked with the technique's name, so that a trace counts it under its term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from ...kernels.dispatch import Dispatcher
from ...kernels.marks import mark
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.plan.technique_groups import used_techniques
from ...spec.report.trace_marks import UPDATE, technique_mark
from ...spec.schedules.passes import Pass
from ...spec.strategy import LayerStrategy
from ..groups.process_groups import ProcessGroups
from ..technique import NamedState, RunTechniques, TechniqueContext, TechniqueHooks
from .local_parameters import LocalParameter
from .options import BuildOptions


class TechniqueHookList:
    """The hooks of a plan's techniques on this rank.

    Args:
        options: the techniques, device and seed.
        modules: of this rank's layers, by number.
    """

    def __init__(
        self,
        plan: Plan,
        process_groups: ProcessGroups,
        options: BuildOptions,
        layers: Mapping[int, tuple[LayerStrategy, tuple[LocalParameter, ...]]],
        modules: Mapping[int, nn.Module] | None = None,
    ) -> None:
        self._hooks: dict[str, TechniqueHooks] = {}
        self._pass = Pass(forward=True, chunk=0, micro_batch=0)
        used, values = used_techniques(plan), plan.program.techniques
        kernels = Dispatcher(options.kernels)
        for run in options.techniques.runs:
            if run.name not in used:
                continue
            members = {
                n: pair
                for n, pair in layers.items()
                if run.name in values or run.name in pair[0].techniques
            }
            own = {n: module for n, module in (modules or {}).items() if n in members}
            context = TechniqueContext(
                name=run.name,
                plan=plan,
                process_groups=process_groups,
                device=options.device,
                seed=options.seed,
                strategies={n: strategy for n, (strategy, _) in members.items()},
                parameters={n: parameters for n, (_, parameters) in members.items()},
                modules=own,
                units={n: unit for n, unit in own.items() if isinstance(unit, FSDPModule)},
                streams={name: _stream(options.device) for name in run.streams},
                kernels=kernels,
                value=values.get(run.name),
            )
            self._hooks[run.name] = run.start(context)
        self._names = {
            n: tuple(name for name in self._hooks if name in values or name in strategy.techniques)
            for n, (strategy, _) in layers.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Active techniques of the plan."""
        return tuple(self._hooks)

    def is_active(self, layer: int) -> bool:
        """True if any technique is active in a layer."""
        return bool(self._names[layer])

    def begin_pass(self, item: Pass) -> None:
        """Called before a pass."""
        self._pass = item
        self._call(self._hooks, lambda hooks: hooks.begin_pass(item))

    def end_pass(self, item: Pass) -> None:
        """Called after a pass and what it reduces."""
        self._call(self._hooks, lambda hooks: hooks.end_pass(item))

    @contextmanager
    def around_layer(self, layer: int) -> Iterator[None]:
        """Surround a layer's forward."""
        with ExitStack() as stack:
            for name in self._names[layer]:
                stack.enter_context(self._hooks[name].around_layer(layer, self._pass))
            yield

    def after_backward(self, layer: int) -> None:
        """Called at a micro-batch's gradient of a layer's input."""
        item = self._pass
        self._call(self._names[layer], lambda hooks: hooks.after_backward(layer, item))

    def gradients_ready(self, layer: int) -> None:
        """Called at a layer's complete gradients."""
        self._call(self._names[layer], lambda hooks: hooks.gradients_ready(layer))

    def relocated(self, parameter: LocalParameter) -> LocalParameter:
        """A parameter with the tensor that the optimizer updates."""
        for name in self._names.get(parameter.layer, ()):
            parameter = self._hooks[name].relocated(parameter)
        return parameter

    def relocated_changed(self) -> None:
        """Called when relocated parameters' values changed."""
        self._call(self._hooks, lambda hooks: hooks.relocated_changed())

    def begin_step(self) -> None:
        """Called before the first pass of a step."""
        self._call(self._hooks, lambda hooks: hooks.begin_step())

    def before_update(self) -> None:
        """Called at complete gradients and known norm."""
        self._call(self._hooks, lambda hooks: hooks.before_update())

    def gradients_final(self) -> None:
        """Called between clipping and the optimizer."""
        self._call(self._hooks, lambda hooks: hooks.gradients_final())

    def around_update(self, update: Callable[[], None], learning_rate: float) -> None:
        """Update the weights, as techniques of the program have it; only their work is marked."""
        for name, hooks in self._hooks.items():
            if type(hooks).around_update is not TechniqueHooks.around_update:
                update = partial(_marked_update, name, hooks, update, learning_rate)
        update()

    def host_updated(self, layer: int) -> None:
        """Called once the host has updated a layer."""
        self._call(self._names[layer], lambda hooks: hooks.host_updated(layer))

    def end_step(self) -> None:
        """Called after the update."""
        self._call(self._hooks, lambda hooks: hooks.end_step())

    def report(self) -> dict[str, Any]:
        """Facts about the rank's steps, by technique."""
        reports = {name: hooks.report() for name, hooks in self._hooks.items()}
        return {name: facts for name, facts in reports.items() if facts}

    def close(self) -> None:
        """Free resources; no use afterwards."""
        self._call(self._hooks, lambda hooks: hooks.close())

    def _call(self, names: Iterable[str], hook: Callable[[TechniqueHooks], None]) -> None:
        for name in names:
            with mark(technique_mark(name)):
                hook(self._hooks[name])

    def state(self) -> dict[str, NamedState]:
        """All techniques' persistent states, as ``TECHNIQUE.NAME``."""
        return {
            f"{name}.{key}": entry
            for name, hooks in self._hooks.items()
            for key, entry in hooks.state().items()
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore tensors of the shapes and types of :meth:`state`, in place.

        Raises:
            InputError: an entry is missing, unknown, or of another form.
        """
        states = self.state()
        for name in sorted({*tensors} ^ {*states}):
            problem = "missing" if name in states else "given"
            allowed = f"the states of this run: {', '.join(states)}"
            raise InputError(f"state {name}", problem, allowed)
        for name, entry in states.items():
            value, target = tensors[name], entry.tensor
            if (value.shape, value.dtype) != (target.shape, target.dtype):
                form = f"{value.dtype} of shape {tuple(value.shape)}"
                allowed = f"{target.dtype} of shape {tuple(target.shape)}"
                raise InputError(f"state {name}", form, allowed)
        with torch.no_grad():
            for name, entry in states.items():
                entry.tensor.copy_(tensors[name])


def _marked_update(
    name: str, hooks: TechniqueHooks, update: Callable[[], None], learning_rate: float
) -> None:
    def own_update() -> None:
        with mark(UPDATE):
            update()

    with mark(technique_mark(name)):
        hooks.around_update(own_update, learning_rate)


def hides_bytes(plan: Plan, device: torch.device, techniques: RunTechniques) -> bool:
    """True if a plan's live bytes cannot be followed on a device."""
    used = used_techniques(plan)
    return any(run.hides_bytes(plan, device) for run in techniques.runs if run.name in used)


def _stream(device: torch.device) -> torch.cuda.Stream | None:
    return None if device.type == "cpu" else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
