"""Pipeline shapes: what a plan decides before cuts and layer strategies."""

from __future__ import annotations

from typing import NamedTuple

from ..spec.schedule import ScheduleKind, first_in_flight


class Shape(NamedTuple):
    """A pipeline shape: stages of ``ranks`` devices, schedule, virtual stages, micro-batches."""

    stages: int
    ranks: int
    kind: ScheduleKind
    chunks: int
    microbatches: int

    @property
    def positions(self) -> int:
        """Chunks in all: stages times virtual stages."""
        return self.stages * self.chunks

    @property
    def passes(self) -> int:
        """Forward and backward passes of all stages in a step."""
        return 2 * self.positions * self.microbatches

    def first_in_flight(self, stage: int) -> list[int]:
        """Micro-batches of each chunk that a stage holds before its first backward pass."""
        return first_in_flight(self.kind, stage, self.stages, self.chunks, self.microbatches)
