"""Optimizer of offloaded parameters, on the host's processor and memory.

States are made up front, not with the first step, so that all lie on the host. Each layer is one
call, as priced: its matrices, then its vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..host.tier import host_copy, host_like
from .adamw import AdamWOptions, Groups, Pair, decayed
from .optimizers import COUNTS, MOMENTS, make_optimizer

HOST = torch.device("cpu")


class HostOptimizer:
    """Optimizer over parameters on the host; a no-op without any."""

    def __init__(self, pairs: list[Pair], options: AdamWOptions, name: str = "adamw") -> None:
        groups = list(_by_layer(pairs, options.weight_decay))
        self._optimizer = make_optimizer(name, groups, options, fused=True) if groups else None
        for group in groups:
            for leaf in group["params"]:
                self.states[leaf] = _fresh(leaf, name)

    @property
    def states(self) -> dict[Tensor, dict[str, Tensor]]:
        """State of each leaf."""
        if self._optimizer is None:
            return {}
        states: dict[Tensor, dict[str, Tensor]] = self._optimizer.state
        return states

    @property
    def param_groups(self) -> Groups:
        """Parameter groups, whose learning rate a step sets."""
        return [] if self._optimizer is None else self._optimizer.param_groups

    def put(self, leaf: nn.Parameter, optimizer_state: Mapping[str, Tensor]) -> None:
        """Restore the state of a parameter."""
        self.states[leaf] = {
            name: host_copy(value, HOST) for name, value in optimizer_state.items()
        }

    def step(self) -> None:
        """Update every leaf by its gradient."""
        if self._optimizer is not None:
            self._optimizer.step()


def _by_layer(pairs: list[Pair], decay: float) -> Iterator[dict[str, Any]]:
    layers = dict.fromkeys(parameter.layer for parameter, _ in pairs)
    for layer in layers:
        yield from decayed([pair for pair in pairs if pair[0].layer == layer], decay)


def _fresh(leaf: nn.Parameter, optimizer: str) -> dict[str, Tensor]:
    count = torch.empty((), dtype=torch.float32, device="meta")
    counts = {name: host_like(count, HOST, zero=True) for name in COUNTS[optimizer]}
    return counts | {name: host_like(leaf, HOST, zero=True) for name in MOMENTS[optimizer]}
