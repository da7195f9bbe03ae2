"""Sign updates on real ranks: the optimizer's own step is never called."""

from __future__ import annotations

from collections.abc import Callable

import torch
from toys.programs.signs_value import NAME, TECHNIQUE

from shardwright.executor.technique import (
    RunTechniques,
    TechniqueContext,
    TechniqueHooks,
    TechniqueRun,
)


class LiveSigns(TechniqueHooks):
    """Steps every layer along the signs of its gradients."""

    def __init__(self, context: TechniqueContext) -> None:
        self._parameters = context.parameters

    def around_update(self, update: Callable[[], None], learning_rate: float) -> None:
        """Step in the optimizer's place."""
        with torch.no_grad():
            for parts in self._parameters.values():
                pairs = [(p.data, grad) for p in parts if (grad := p.grad) is not None]
                if pairs:
                    weights, gradients = (list(side) for side in zip(*pairs, strict=True))
                    signs = torch._foreach_sign(gradients)
                    torch._foreach_add_(weights, signs, alpha=-learning_rate)


RUN = TechniqueRun(name=NAME, start=LiveSigns)
RUNS = RunTechniques(values=(TECHNIQUE,), runs=(RUN,))
