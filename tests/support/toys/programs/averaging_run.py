"""Averaging on real ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from toys.programs.averaging_value import NAME, TECHNIQUE, AveragedWeights, groups

from shardwright.executor.technique import (
    NamedState,
    Placement,
    RunTechniques,
    TechniqueContext,
    TechniqueHooks,
    TechniqueRun,
)


class LiveAveraging(TechniqueHooks):
    """Counts steps, and moves weights towards their mean over replicas."""

    def __init__(self, context: TechniqueContext) -> None:
        self._context = context
        self._value: AveragedWeights = context.value
        self._counts = {n: torch.zeros(1, dtype=torch.int64) for n in context.strategies}
        self._step = 0

    def begin_step(self) -> None:
        """Continue where a restored count is."""
        self._step = max((int(count) for count in self._counts.values()), default=0) + 1

    def end_step(self) -> None:
        """Average after every so many steps."""
        for layer, count in self._counts.items():
            count.fill_(self._step)
            if self._step % self._value.every == 0:
                self._average(layer)

    def _average(self, layer: int) -> None:
        context = self._context
        strategy, ranks = context.strategies[layer], context.process_groups.stage_ranks
        (shape,) = groups(self._value, strategy, ranks)
        parts = [p.data for p in context.parameters[layer] if p.data.numel()]
        if shape.size == 1 or not parts:
            return
        with torch.no_grad():
            mean = torch.cat([part.reshape(-1) for part in parts])
            dist.all_reduce(mean, group=context.group(shape))
            mean.div_(shape.size)
            pieces = mean.split([part.numel() for part in parts])  # type: ignore[no-untyped-call]
            for part, piece in zip(parts, pieces, strict=True):
                part.lerp_(piece.view(part.shape), self._value.pull)

    def state(self) -> dict[str, NamedState]:
        """Steps so far."""
        return {
            f"{layer}.steps": NamedState(tensor=count, placement=Placement(kind="own"))
            for layer, count in self._counts.items()
        }


RUN = TechniqueRun(name=NAME, start=LiveAveraging)
RUNS = RunTechniques(values=(TECHNIQUE,), runs=(RUN,))
