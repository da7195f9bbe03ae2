"""The run of a census."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from toys.census_value import NAME, TECHNIQUE, groups, mode_of

from shardwright.executor.technique import (
    NamedState,
    Placement,
    RunTechniques,
    TechniqueContext,
    TechniqueHooks,
    TechniqueRun,
)

FADE = 0.5
COPIES = "copies"


class LiveCensus(TechniqueHooks):
    """Running sums of squares, of every block that holds a census."""

    def __init__(self, context: TechniqueContext) -> None:
        self._context = context
        self._sums: dict[int, Tensor] = {}
        self._held: dict[int, list[Tensor]] = {}
        for layer, strategy in context.strategies.items():
            if mode_of(strategy) == "each":
                self._sums[layer] = torch.zeros(1, device=context.device)
            else:
                parts = context.parameters[layer]
                self._held[layer] = [torch.zeros_like(part.data) for part in parts]

    def _gradients(self, layer: int) -> list[Tensor]:
        parts = self._context.parameters[layer]
        return [grad for part in parts if (grad := part.grad) is not None]

    def gradients_ready(self, layer: int) -> None:
        """Count the squares, at once or in place."""
        gradients = self._gradients(layer)
        if layer in self._held:
            torch._foreach_addcmul_(self._held[layer], gradients, gradients)
            return
        norms = torch._foreach_norm(gradients)
        total = torch.stack(norms).square().sum().reshape(1)
        strategy, ranks = self._context.strategies[layer], self._context.process_groups.stage_ranks
        for shape in groups(strategy, ranks):
            if shape.size > 1:
                with self._context.on(COPIES):
                    dist.all_reduce(total, group=self._context.group(shape))
        self._sums[layer].add_(total)

    def before_update(self) -> None:
        """Held squares fade."""
        for held in self._held.values():
            torch._foreach_mul_(held, FADE)

    def state(self) -> dict[str, NamedState]:
        """One number a layer, equal on all ranks; or squares, cut as the parameters are."""
        states = {}
        for layer, total in self._sums.items():
            (group,) = groups(
                self._context.strategies[layer], self._context.process_groups.stage_ranks
            )
            everywhere = Placement(kind="replicated", group=group)
            states[f"{layer}.sum"] = NamedState(tensor=total, placement=everywhere)
        for layer, held in self._held.items():
            for part, squares in zip(self._context.parameters[layer], held, strict=True):
                entry = NamedState(tensor=squares, placement=Placement(kind="own"))
                states[f"{layer}.{part.name}"] = entry
        return states


RUN = TechniqueRun(name=NAME, start=LiveCensus, streams=(COPIES,))
RUNS = RunTechniques(values=(TECHNIQUE,), runs=(RUN,))
