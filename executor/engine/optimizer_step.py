"""From raw gradients to updated weights: pending sums, clipping, optimizer.

Everything works on local shards. Global norm and loss travel in one all-reduce of two float64 over
the world: each part's squared norm is divided by its number of replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...kernels.dense.adamw import fused_adamw
from ...kernels.dispatch import Dispatcher
from ...kernels.marks import mark
from ...spec.parallel.rank_groups import tensor_group
from ...spec.report.trace_marks import COMMUNICATE_NORM, COMMUNICATE_SUMS
from ..groups.process_groups import ProcessGroups
from ..host.transfers import to_device
from ..stage.local_parameters import LocalParameter
from .adamw import AdamWOptions, decayed
from .host_optimizer import HostOptimizer
from .optimizers import make_optimizer


class UpdateHooks(Protocol):
    """Hooks of techniques around an update."""

    def gradients_final(self) -> None:
        """Called between clipping and the optimizer."""

    def around_update(self, update: Callable[[], None], learning_rate: float) -> None:
        """Update the weights, by ``update`` or in its place."""

    def host_updated(self, layer: int) -> None:
        """Called once the host has updated a layer."""


class Updater:
    """The optimizer of one rank.

    Args:
        clip_norm: global gradient norm to clip to; None for no clipping.
        kernels: choose the form of the step.
        hooks: called after clipping, to fill gradients on the host, and after each layer there.
        optimizer: its name.
    """

    def __init__(
        self,
        parameters: list[LocalParameter],
        process_groups: ProcessGroups,
        clip_norm: float | None,
        options: AdamWOptions,
        kernels: Dispatcher,
        hooks: UpdateHooks,
        optimizer: str = "adamw",
    ) -> None:
        self.parameters = parameters
        self.process_groups = process_groups
        self.clip_norm = clip_norm
        self._hooks = hooks
        self._host_factors: list[float | Tensor] = []
        self._leaves = [nn.Parameter(p.data, requires_grad=False) for p in parameters]
        for leaf in self._leaves:
            leaf.requires_grad_(True)
        pairs = [*zip(parameters, self._leaves, strict=True)]
        device_pairs = [(p, leaf) for p, leaf in pairs if not p.on_host]
        fused = bool(device_pairs) and fused_adamw(kernels, device_pairs[0][1])
        empty = nn.Parameter(torch.empty(0))  # a stage of frozen layers: torch refuses no group
        groups = decayed(device_pairs, options.weight_decay) or [{"params": [empty]}]
        self.optimizer = make_optimizer(optimizer, groups, options, fused)
        self.host = HostOptimizer([pair for pair in pairs if pair[0].on_host], options, optimizer)

    def resident_tensors(self) -> list[Tensor]:
        """Optimizer states, and gradients waiting for it on the host."""
        states = (*self.optimizer.state.values(), *self.host.states.values())
        tensors = [value for state in states for value in state.values()]
        return tensors + [p.host_gradient for p in self.parameters if p.host_gradient is not None]

    def optimizer_state(self, parameter: LocalParameter) -> dict[str, Tensor]:
        """A parameter's optimizer state by its own keys; empty before an update."""
        states = self.host.states if parameter.on_host else self.optimizer.state
        state = states.get(self._leaf(parameter), {})
        return {name: value for name, value in state.items() if isinstance(value, Tensor)}

    def load_optimizer_state(
        self, parameter: LocalParameter, optimizer_state: Mapping[str, Tensor]
    ) -> None:
        """Restore :meth:`optimizer_state` of a parameter.

        The step count stays on the host unless the step is fused, as torch makes it.
        """
        leaf = self._leaf(parameter)
        if parameter.on_host:
            self.host.put(leaf, optimizer_state)
            return
        fused = bool(self.optimizer.defaults["fused"])
        self.optimizer.state[leaf] = {
            name: value.to(leaf.device if fused or value.dim() else "cpu")
            for name, value in optimizer_state.items()
        }

    def _leaf(self, parameter: LocalParameter) -> nn.Parameter:
        pairs = zip(self.parameters, self._leaves, strict=True)
        return next(leaf for other, leaf in pairs if other is parameter)

    def finish_gradients(self) -> None:
        """Reduce pending sums over ranks: sequence-parallel parts, shared parameters."""
        self._sum_partial()
        self._sum_tied()

    def _sum_partial(self) -> None:
        by_degree: dict[int, list[Tensor]] = {}
        for p in self.parameters:
            grad = p.grad
            if p.partial_gradient and grad is not None:
                by_degree.setdefault(p.strategy.tp, []).append(grad)
        for degree in sorted(by_degree):
            grads = by_degree[degree]
            flat = torch.cat([g.reshape(-1) for g in grads])
            strategy = next(p.strategy for p in self.parameters if p.strategy.tp == degree)
            with mark(COMMUNICATE_SUMS):
                dist.all_reduce(flat, group=self.process_groups.group(tensor_group(strategy)))
            sizes = [g.numel() for g in grads]
            parts = flat.split(sizes)  # type: ignore[no-untyped-call]
            for grad, part in zip(grads, parts, strict=True):
                grad.copy_(part.view(grad.shape))

    def _sum_tied(self) -> None:
        """Sum gradients of tied copies, on this stage and then over stages."""
        for name, tied in self.process_groups.tied.items():
            copies = [_grad(p) for p in self.parameters if p.tied == name]
            for other in copies[1:]:
                copies[0].add_(other)
            if copies and len(tied.ranks) > 1:  # a frozen one has none
                if tied.weight_of(self.process_groups.rank) != 1:
                    copies[0].mul_(tied.weight_of(self.process_groups.rank))
                with mark(COMMUNICATE_SUMS):
                    dist.all_reduce(copies[0], group=self.process_groups.group_of(tied.ranks))
            for other in copies[1:]:
                other.copy_(copies[0])

    def gradient_norm_and_loss(
        self, loss: Tensor, loss_replicas: int, tally: Tensor | None = None
    ) -> Tensor:
        """Global gradient norm and loss, (2,) float64, equal on every rank.

        ``tally``: float64 to sum with them; it follows them in what is returned.
        """
        total = torch.zeros(2, dtype=torch.float64, device=loss.device)
        parameters = [p for p in self.parameters if p.in_norm and p.grad is not None]
        if parameters:
            norms = torch.stack(torch._foreach_norm([_grad(p) for p in parameters], 2))
            weights = to_device(torch.tensor([1 / p.replicas for p in parameters]), norms.device)
            total[0] = norms.square_().mul_(weights).sum()
        total[1] = loss / loss_replicas
        if tally is not None:
            total = torch.cat((total, tally))
        with mark(COMMUNICATE_NORM):
            dist.all_reduce(total)
        total[0].sqrt_()
        return total

    def unscale(self, factor: float) -> None:
        """Divide all gradients by the loss scale, on the host with the update."""
        self._scale(1 / factor)

    def _scale(self, factor: float | Tensor) -> None:
        """Multiply the device's gradients now, the host's before its update."""
        grads = [grad for p in self.parameters if not p.on_host and (grad := p.grad) is not None]
        if grads:
            torch._foreach_mul_(grads, factor)
        self._host_factors.append(factor)

    def drop_gradients(self) -> None:
        """Discard a step's gradients."""
        for p in self.parameters:
            p.parameter.grad = None
        self._host_factors.clear()

    def update(self, norm: Tensor, learning_rate: float) -> None:
        """Clip to the norm and step the optimizer; gradients are freed."""
        for group in (*self.optimizer.param_groups, *self.host.param_groups):
            group["lr"] = learning_rate
        dtypes = [grad.dtype for p in self.parameters if (grad := p.grad) is not None]
        if self.clip_norm is not None and dtypes:
            self._scale((self.clip_norm / (norm + 1e-6)).clamp(max=1.0).to(dtypes[0]))
        self._hooks.gradients_final()
        for p, leaf in zip(self.parameters, self._leaves, strict=True):
            leaf.grad = p.grad if p.host_gradient is None else p.host_gradient
        self._hooks.around_update(self._step, learning_rate)
        for leaf in self._leaves:
            leaf.grad = None
        self.drop_gradients()

    def _step(self) -> None:
        self.optimizer.step()
        self.host.step(self._host_factors, self._hooks.host_updated)


def _grad(parameter: LocalParameter) -> Tensor:
    grad = parameter.grad
    if grad is None:
        raise RuntimeError(f"{parameter.name} has no gradient")
    return grad


__all__ = ["AdamWOptions", "Updater"]
