"""Lion as an optimizer of torch's interface, on this rank's shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from ...kernels.dense.lion import lion_step

MOMENT = "exp_avg"
"""Its only state, named as AdamW's first moment."""
BETAS = (0.9, 0.99)
"""Chen et al., 2023, arXiv:2302.06675, section 4: the default."""


class Lion(Optimizer):
    """Sign of an averaged gradient, with decoupled weight decay.

    ``fused`` is False in its defaults: states need no particular place.
    """

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float] = BETAS) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0, "fused": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            leaves = [leaf for leaf in group["params"] if leaf.grad is not None]
            for leaf in leaves:
                state = self.state[leaf]
                if MOMENT not in state:
                    state[MOMENT] = torch.zeros_like(leaf)
            lion_step(
                leaves,
                [leaf.grad for leaf in leaves],
                [self.state[leaf][MOMENT] for leaf in leaves],
                learning_rate=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
            )
