"""In-flight micro-batches of each chunk at the stage's memory peak.

Before its first backward a stage holds the micro-batches of its warm-up; after it, soon as many
again, and the gradients of earlier ones. With split backwards a micro-batch still waits with the
inputs of its weight gradients: later stages of a zero bubble have few in flight and all others
waiting. Any moment bounds a stage's memory from below; this is the peak for layers that keep
``WAITING_SHARE`` while waiting.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...spec.schedules.stage_order import ScheduleKind, stage_order

WAITING_SHARE = 0.7
GRADIENT_TIE_BREAK = 1e-3
"""Of two otherwise equal moments, the one with gradients counts."""
WAITING_CHANGE = {"input": 1, "weight": -1}
"""Change of waiting micro-batches (weight gradients to come) by a part of a backward."""
STEADY_PER_STAGE = 4
"""Micro-batches a stage, beyond which the peak no longer grows."""


class InFlight(NamedTuple):
    """In-flight micro-batches of a chunk.

    ``in_flight``: before their backward; ``waiting``: only for weight gradients; ``accumulated``:
    True if there are gradients of others; ``backward``: True if its whole backward comes next.
    """

    in_flight: float
    waiting: float = 0.0
    accumulated: bool = False
    backward: bool = False


ONE_IN_FLIGHT = InFlight(1.0)
"""In flight in every chunk at some moment, whatever its schedule."""


def peak_in_flight(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, microbatches: int
) -> tuple[InFlight, ...]:
    """In-flight micro-batches of a stage's chunks, about at its memory peak."""
    if kind == "gpipe":
        return (*((InFlight(microbatches),) * (chunks - 1)), InFlight(microbatches, backward=True))
    if kind in ("1f1b", "zero_bubble"):
        return (_single_chunk_peak(kind, stage, stages, microbatches),)
    return _peak(kind, stage, stages, chunks, min(microbatches, STEADY_PER_STAGE * stages))


def _single_chunk_peak(kind: ScheduleKind, stage: int, stages: int, microbatches: int) -> InFlight:
    """Peak of a one-chunk stage with a forward before each backward.

    It always has its warm-up and that forward in flight. A zero bubble's weight gradients wait for
    ``stage`` backwards more.
    """
    whole = kind == "1f1b"
    deferred = 0 if whole else stage
    backwards = microbatches - (stages - stage)  # before the last forward
    if backwards < 0:  # all of its forwards are its warm-up
        return InFlight(float(microbatches), backward=whole)
    waiting = float(min(backwards, deferred))
    return InFlight(float(stages - stage), waiting, backwards > deferred, whole)


@lru_cache(maxsize=1 << 14)
def _peak(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, microbatches: int
) -> tuple[InFlight, ...]:
    in_flight, waiting, accumulated = [0] * chunks, [0] * chunks, [False] * chunks
    total_in_flight = total_waiting = 0
    largest, peak, is_peak = -1.0, (InFlight(0.0),) * chunks, False
    for forward, chunk, _, part, _ in stage_order(kind, stage, stages, chunks, microbatches):
        if not forward:
            if is_peak and part == "whole":
                peak = (*peak[:chunk], peak[chunk]._replace(backward=True), *peak[chunk + 1 :])
            is_peak = False
            done, waits = part != "weight", WAITING_CHANGE.get(part, 0)
            in_flight[chunk] -= done
            waiting[chunk] += waits
            total_in_flight, total_waiting = total_in_flight - done, total_waiting + waits
            accumulated[chunk] = accumulated[chunk] or part != "input"
            continue
        in_flight[chunk] += 1
        total_in_flight += 1
        size = total_in_flight + WAITING_SHARE * total_waiting
        size = size + GRADIENT_TIE_BREAK * sum(accumulated)
        is_peak = size > largest
        if is_peak:
            largest = size
            peak = tuple(map(InFlight, map(float, in_flight), map(float, waiting), accumulated))
    return peak
