"""Pipeline shapes: decisions before boundaries and layer strategies."""

from __future__ import annotations

from typing import NamedTuple

from ...costmodel.simulation.overlapped_passes import PAIRED_KINDS
from ...spec.schedules.stage_order import (
    SPLIT_KINDS,
    ScheduleKind,
    chunk_location,
    chunk_position,
    first_in_flight,
)
from .in_flight import InFlight, peak_in_flight


class DeviceSlice(NamedTuple):
    """Devices of one group in a stage, and their micro-batch samples."""

    group: str
    first: int
    devices: int
    samples: int


StagePlacement = tuple[DeviceSlice, ...]
"""The devices of one stage."""


class PipelineShape(NamedTuple):
    """Stages of ``ranks`` devices, schedule, virtual stages and micro-batches.

    ``places``: devices of every stage over several device groups; ``ranks`` is 0 then, and each
    stage has its own width.
    """

    stages: int
    ranks: int
    kind: ScheduleKind
    chunks: int
    microbatches: int
    places: tuple[StagePlacement, ...] = ()

    @property
    def devices(self) -> int:
        """Devices in stages."""
        if not self.places:
            return self.stages * self.ranks
        return sum(part.devices for placement in self.places for part in placement)

    @property
    def fills_and_drains(self) -> bool:
        """True if stages wait for a micro-batch of earlier ones, both ways.

        Interleaved chunks come back before a micro-batch is through; split backwards fill the time
        with weight gradients.
        """
        return self.kind in ("gpipe", "1f1b")

    def position(self, stage: int, chunk: int) -> int:
        """Position in the model of a chunk of a stage."""
        return chunk_position(self.kind, stage, chunk, self.stages)

    def stage_of(self, position: int) -> int:
        """Stage of a position in the model; inverse of ``position``."""
        return chunk_location(self.kind, position, self.stages)[0]

    @property
    def positions(self) -> int:
        """Chunks in all: stages times virtual stages."""
        return self.stages * self.chunks

    @property
    def passes(self) -> int:
        """Passes of all stages in a step; a split backward counts twice."""
        return (3 if self.kind in SPLIT_KINDS else 2) * self.positions * self.microbatches

    @property
    def overlaps_passes(self) -> bool:
        """True if passes overlap, so that work hides communication."""
        return self.kind in PAIRED_KINDS

    def peak_in_flight(self, stage: int) -> tuple[InFlight, ...]:
        """In-flight micro-batches of each chunk, about at the stage's memory peak."""
        return peak_in_flight(self.kind, stage, self.stages, self.chunks, self.microbatches)

    def first_in_flight(self, stage: int) -> list[int]:
        """Micro-batches of each chunk of a stage before its first backward pass."""
        return first_in_flight(self.kind, stage, self.stages, self.chunks, self.microbatches)
