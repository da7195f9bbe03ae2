"""Optimizer of offloaded parameters, on the host's processor and memory.

States are made up front, not with the first step, so that all lie on the host. Each layer is one
call, as priced: its gradients are scaled, then its matrices updated, then its vectors. So a layer's
weights may leave for the device while the next one is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ..host.tier import host_copy, host_like
from .adamw import AdamWOptions, Groups, Pair, decayed
from .optimizers import COUNTS, MOMENTS, make_optimizer

HOST = torch.device("cpu")


class HostOptimizer:
    """Optimizers of layers on the host; a no-op without any."""

    def __init__(self, pairs: list[Pair], options: AdamWOptions, name: str = "adamw") -> None:
        self._layers: dict[int, torch.optim.Optimizer] = {}
        for layer in dict.fromkeys(parameter.layer for parameter, _ in pairs):
            own = [pair for pair in pairs if pair[0].layer == layer]
            if groups := decayed(own, options.weight_decay):
                self._layers[layer] = make_optimizer(name, groups, options, fused=True)
        self._by_leaf = {
            leaf: optimizer for optimizer in self._layers.values() for leaf in _leaves(optimizer)
        }
        for leaf, optimizer in self._by_leaf.items():
            optimizer.state[leaf] = _fresh(leaf, name)

    @property
    def states(self) -> dict[Tensor, dict[str, Tensor]]:
        """State of each leaf."""
        return {leaf: optimizer.state[leaf] for leaf, optimizer in self._by_leaf.items()}

    @property
    def param_groups(self) -> Groups:
        """Parameter groups, whose learning rate a step sets."""
        return [group for optimizer in self._layers.values() for group in optimizer.param_groups]

    def put(self, leaf: nn.Parameter, optimizer_state: Mapping[str, Tensor]) -> None:
        """Restore the state of a parameter; one without elements has none."""
        if leaf not in self._by_leaf:
            return
        self._by_leaf[leaf].state[leaf] = {
            name: host_copy(value, HOST) for name, value in optimizer_state.items()
        }

    def step(self, factors: Sequence[float | Tensor], updated: Callable[[int], None]) -> None:
        """Scale each layer's gradients and update it by them, layer by layer.

        Args:
            factors: of the gradients, in turn.
            updated: called with a layer once its weights are new.
        """
        if not self._layers:
            return
        scales = [f.to(HOST) if isinstance(f, Tensor) else f for f in factors]
        for layer, optimizer in self._layers.items():
            gradients = [leaf.grad for leaf in _leaves(optimizer) if leaf.grad is not None]
            for scale in scales:
                torch._foreach_mul_(gradients, scale)
            optimizer.step()
            updated(layer)


def _leaves(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [leaf for group in optimizer.param_groups for leaf in group["params"]]


def _fresh(leaf: nn.Parameter, optimizer: str) -> dict[str, Tensor]:
    count = torch.empty((), dtype=torch.float32, device="meta")
    counts = {name: host_like(count, HOST, zero=True) for name in COUNTS[optimizer]}
    return counts | {name: host_like(leaf, HOST, zero=True) for name in MOMENTS[optimizer]}
