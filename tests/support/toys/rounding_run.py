"""Rounding on real ranks, and a count of the passes that it meets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from toys.rounding_value import COUNTS, NAME, TECHNIQUE

from shardwright.executor.models.layer import LayerModule
from shardwright.executor.stage.options import BuildOptions
from shardwright.executor.technique import (
    NamedState,
    Placement,
    RunTechniques,
    TechniqueContext,
    TechniqueHooks,
    TechniqueRun,
)
from shardwright.spec.schedules.passes import Pass
from shardwright.spec.strategy import LayerStrategy

FORWARD, BACKWARD, COMPLETE, BEGUN, CLOSING, ENDED, ENTERED, LEFT, DRAWN = range(COUNTS)


def prepare(module: LayerModule, strategy: LayerStrategy, options: BuildOptions) -> None:
    """Have a block round what it is given."""

    def rounded(module: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, *rest = given
        return (x.to(torch.bfloat16).to(x.dtype), *rest)

    module.register_forward_pre_hook(rounded)


class LiveRounding(TechniqueHooks):
    """Counts the hooks that are called for each layer, beside a number that the seed draws."""

    def __init__(self, place: TechniqueContext) -> None:
        self._now: Pass | None = None
        draw = torch.Generator().manual_seed(place.seed)
        self._counts = {layer: torch.zeros(COUNTS, dtype=torch.int64) for layer in place.strategies}
        for counts in self._counts.values():
            counts[DRAWN] = torch.randint(2**31, (), generator=draw)

    def _every(self, place: int) -> None:
        for counts in self._counts.values():
            counts[place] += 1

    def begin_pass(self, item: Pass) -> None:
        """Count passes; the one before is over."""
        assert self._now is None
        self._now = item
        self._every(ENTERED)

    def end_pass(self, item: Pass) -> None:
        """Count ends of passes."""
        assert item == self._now
        self._now = None
        self._every(LEFT)

    def around_layer(self, layer: int, item: Pass) -> AbstractContextManager[None]:
        """Count a forward when it is over, in its pass."""
        assert item == self._now
        assert item.forward

        @contextmanager
        def counted() -> Iterator[None]:
            yield
            self._counts[layer][FORWARD] += 1

        return counted()

    def after_backward(self, layer: int, item: Pass) -> None:
        """Count a backward, in its pass."""
        assert item == self._now
        assert not item.forward
        self._counts[layer][BACKWARD] += 1

    def gradients_ready(self, layer: int) -> None:
        """Count complete gradients."""
        self._counts[layer][COMPLETE] += 1

    def begin_step(self) -> None:
        """Count beginnings."""
        self._every(BEGUN)

    def before_update(self) -> None:
        """Count updates; a step has begun before each, and none has ended since."""
        assert all(c[BEGUN] > c[CLOSING] == c[ENDED] for c in self._counts.values())
        self._every(CLOSING)

    def end_step(self) -> None:
        """Count ends."""
        self._every(ENDED)

    def state(self) -> dict[str, NamedState]:
        """All counts."""
        own = Placement(kind="own")
        return {
            f"{layer}.counts": NamedState(tensor=counts, placement=own)
            for layer, counts in self._counts.items()
        }


RUN = TechniqueRun(name=NAME, prepare=prepare, start=LiveRounding)
RUNS = RunTechniques(values=(TECHNIQUE,), runs=(RUN,))
