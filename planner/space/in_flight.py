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
SUMMED_SHARE = 1e-3
"""Of two moments that are alike but for it, the one with gradients counts."""
WAITS = {"input": 1, "weight": -1}
"""Micro-batches that a part of a backward adds to those whose weight gradients are to come."""
SETTLED = 4
"""Micro-batches a stage, after which more of them make no moment fuller."""


class Held(NamedTuple):
    """What a chunk holds.

    ``in_flight``: micro-batches whose backward is to come; ``waiting``: those whose weight
    gradients alone are; ``summed``: whether there are gradients of others.
    """

    in_flight: float
    waiting: float = 0.0
    summed: bool = False


ONE = Held(1.0)
"""What every chunk holds at some moment, whatever its schedule."""


def held_at_fullest(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, microbatches: int
) -> tuple[Held, ...]:
    """What each chunk of a stage holds at one moment of the step, about the fullest.

    Args:
        kind: schedule name.
        stage: 0-based stage number.
        stages: pipeline degree.
        chunks: virtual stages a stage.
        microbatches: of one step.
    """
    if kind == "gpipe":
        return (Held(microbatches),) * chunks
    if kind in ("1f1b", "zero_bubble"):
        return (_before_a_backward(kind, stage, stages, microbatches),)
    return _fullest(kind, stage, stages, chunks, min(microbatches, SETTLED * stages))


def _before_a_backward(kind: ScheduleKind, stage: int, stages: int, microbatches: int) -> Held:
    """The fullest moment of a stage of one chunk that runs a forward before each backward.

    It then always has its warm-up and that forward in flight. A zero bubble's weight gradients
    wait for ``stage`` backwards more.
    """
    late = stage if kind == "zero_bubble" else 0
    backwards = microbatches - (stages - stage)  # before the last forward
    if backwards < 0:  # all of its forwards are its warm-up
        return Held(float(microbatches))
    return Held(float(stages - stage), float(min(backwards, late)), backwards > late)


@lru_cache(maxsize=1 << 14)
def _fullest(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, microbatches: int
) -> tuple[Held, ...]:
    in_flight, waiting, summed = [0] * chunks, [0] * chunks, [False] * chunks
    begun = back = 0  # in flight and waiting, of all chunks
    fullest, found = -1.0, (Held(0.0),) * chunks
    for forward, chunk, _, part, _ in stage_order(kind, stage, stages, chunks, microbatches):
        if not forward:
            done, waits = part != "weight", WAITS.get(part, 0)
            in_flight[chunk] -= done
            waiting[chunk] += waits
            begun, back = begun - done, back + waits
            summed[chunk] = summed[chunk] or part != "input"
            continue
        in_flight[chunk] += 1
        begun += 1
        size = begun + WAITING_SHARE * back + SUMMED_SHARE * sum(summed)
        if size > fullest:
            fullest = size
            found = tuple(map(Held, map(float, in_flight), map(float, waiting), summed))
    return found
