"""What a stage holds at its fullest moment: micro-batches in flight and halfway back, gradients.

Before its first backward a stage holds the micro-batches of its warm-up. After it, it soon holds
as many again, and the gradients of those before. Where backwards are split a micro-batch that has
gone back still waits with what its weight gradients need: later stages of a zero bubble hold few
in flight and all others so. Any one moment bounds a stage's memory from below, and this is the one
that is fullest for layers whose waiting part is ``WAITING_SHARE`` of what they keep.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...spec.schedules.stage_order import ScheduleKind, stage_order

WAITING_SHARE = 0.7
GRADIENT_TIE_BREAK = 1e-3
"""Of two moments that are alike but for it, the one with gradients counts."""
WAITING_CHANGE = {"input": 1, "weight": -1}
"""Micro-batches that a part of a backward adds to those whose weight gradients are to come."""
STEADY_PER_STAGE = 4
"""Micro-batches a stage, after which more of them make no moment fuller."""


class InFlight(NamedTuple):
    """What a chunk holds.

    ``in_flight``: micro-batches whose backward is to come; ``waiting``: those whose weight
    gradients alone are; ``accumulated``: whether there are gradients of others.
    """

    in_flight: float
    waiting: float = 0.0
    accumulated: bool = False


ONE_IN_FLIGHT = InFlight(1.0)
"""What every chunk holds at some moment, whatever its schedule."""


def peak_in_flight(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, microbatches: int
) -> tuple[InFlight, ...]:
    """What each chunk of a stage holds at one moment of the step, about the fullest.

    Args:
        kind: schedule name.
        stage: 0-based stage number.
        stages: pipeline degree.
        chunks: virtual stages a stage.
        microbatches: of one step.
    """
    if kind == "gpipe":
        return (InFlight(microbatches),) * chunks
    if kind in ("1f1b", "zero_bubble"):
        return (_single_chunk_peak(kind, stage, stages, microbatches),)
    return _peak(kind, stage, stages, chunks, min(microbatches, STEADY_PER_STAGE * stages))


def _single_chunk_peak(kind: ScheduleKind, stage: int, stages: int, microbatches: int) -> InFlight:
    """The fullest moment of a stage of one chunk that runs a forward before each backward.

    It then always has its warm-up and that forward in flight. A zero bubble's weight gradients
    wait for ``stage`` backwards more.
    """
    late = stage if kind == "zero_bubble" else 0
    backwards = microbatches - (stages - stage)  # before the last forward
    if backwards < 0:  # all of its forwards are its warm-up
        return InFlight(float(microbatches))
    return InFlight(float(stages - stage), float(min(backwards, late)), backwards > late)


@lru_cache(maxsize=1 << 14)
def _peak(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, microbatches: int
) -> tuple[InFlight, ...]:
    in_flight, waiting, accumulated = [0] * chunks, [0] * chunks, [False] * chunks
    begun = back = 0  # in flight and waiting, of all chunks
    fullest, found = -1.0, (InFlight(0.0),) * chunks
    for forward, chunk, _, part, _ in stage_order(kind, stage, stages, chunks, microbatches):
        if not forward:
            done, waits = part != "weight", WAITING_CHANGE.get(part, 0)
            in_flight[chunk] -= done
            waiting[chunk] += waits
            begun, back = begun - done, back + waits
            accumulated[chunk] = accumulated[chunk] or part != "input"
            continue
        in_flight[chunk] += 1
        begun += 1
        size = begun + WAITING_SHARE * back + GRADIENT_TIE_BREAK * sum(accumulated)
        if size > fullest:
            fullest = size
            found = tuple(map(InFlight, map(float, in_flight), map(float, waiting), accumulated))
    return found
