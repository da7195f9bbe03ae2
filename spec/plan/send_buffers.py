"""How long a stage keeps what it sends: until whoever needs it has made room for it.

A message moves when both its ends have come to it. The receiver makes room one pass ahead, so in
schedules with whole backwards, and in zero bubble, a message is gone when its sender begins the
second pass after the one that made it. In the shape of a V a stage may be many passes ahead of
those below it: it sends what they take much later, and would wait for them while they wait for it.

There, and in an order that a plan writes, the place is read off an ideal step, in which every pass
takes its usual share of time and messages none: the first pass that begins after the receiver has
made room. Whatever passes really take, all waits then lead to earlier moments of that step, so
they never close to a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ..schedules.action_text import ActionLines, order_of
from ..schedules.passes import Pass
from ..schedules.stage_order import V_KINDS, ScheduleKind, chunk_location, chunk_position

if TYPE_CHECKING:
    from .plan import Program

USUAL_PASSES = 2
"""After so many passes a message is gone where stages keep step with each other."""
PASS_DURATIONS = {"whole": 2, "input": 1, "weight": 1}
"""What a part of a backward takes in the ideal step, against a forward."""
Key = tuple[bool, int, int]
"""A pass by direction, position of its chunk in the model, and micro-batch."""


def send_buffer_release(program: Program, stage: int) -> tuple[int, ...] | None:
    """For each pass of a stage, before which pass of it what that one sent is gone.

    Passes are counted from 0; one more than there are, or two, is the end of the step. What a
    stage sends itself, at the turn of a V, is gone when it is taken; a pass that sends nothing has
    its own successor.

    Args:
        program: of a legal plan.
        stage: its number.

    Returns:
        None where it is always the second pass after.
    """
    schedule, stages = program.schedule, len(program.stages)
    if stages == 1 or (schedule.kind not in V_KINDS and schedule.actions is None):
        return None
    count, chunks = schedule.microbatches, program.chunks_per_stage
    return _schedule_releases(schedule.kind, stages, chunks, count, schedule.actions)[stage]


@lru_cache(maxsize=64)
def _schedule_releases(
    kind: ScheduleKind, stages: int, chunks: int, micro_batches: int, lines: ActionLines
) -> tuple[tuple[int, ...], ...]:
    orders = [order_of(kind, s, stages, chunks, micro_batches, lines) for s in range(stages)]
    return all_send_buffer_releases(kind, orders)


def all_send_buffer_releases(
    kind: ScheduleKind, orders: Sequence[tuple[Pass, ...]]
) -> tuple[tuple[int, ...], ...]:
    """:func:`send_buffer_release` for all stages.

    Args:
        kind: says where chunks lie.
        orders: the passes of every stage.
    """
    step = _IdealStep(kind, orders)
    starts, takes = step.starts, step.takes
    found = []
    for stage, order in enumerate(orders):
        own, positions = starts[stage], step.positions[stage]
        places = []
        for number, item in enumerate(order):
            position = positions[item.chunk]
            beyond = (item.forward, position + (1 if item.forward else -1), item.micro_batch)
            if item.part == "weight" or beyond not in takes:
                places.append(number + 1)
                continue
            taker, place = takes[beyond]
            if taker == stage:
                places.append(place)
                continue
            room = starts[taker][place - 1] if place else -1
            at = number + USUAL_PASSES
            while at < len(own) and own[at] <= room:
                at += 1
            places.append(at)
        found.append(tuple(places))
    return tuple(found)


class _IdealStep:
    """When each pass of every stage begins, and which pass of which stage takes each message.

    Args:
        kind: says where chunks lie.
        orders: the passes of every stage.
    """

    def __init__(self, kind: ScheduleKind, orders: Sequence[tuple[Pass, ...]]) -> None:
        self.orders = orders
        self.starts: list[list[int]] = [[] for _ in orders]
        self.takes: dict[Key, tuple[int, int]] = {}
        chunks = range(1 + max(item.chunk for item in orders[0]))
        self.positions = [
            [chunk_position(kind, stage, chunk, len(orders)) for chunk in chunks]
            for stage in range(len(orders))
        ]
        self._last = len(orders) * len(chunks) - 1
        self._clocks = [0] * len(orders)
        self._ends: dict[Key, int] = {}
        moved = True
        while moved:
            found = [self._advance(stage) for stage in range(len(orders))]
            moved = any(found)

    def _advance(self, stage: int) -> bool:
        """Run passes of a stage until one's input is missing; whether any ran."""
        starts, order = self.starts[stage], self.orders[stage]
        before, positions = len(starts), self.positions[stage]
        while len(starts) < len(order):
            item = order[len(starts)]
            position = positions[item.chunk]
            begins_at = self._clocks[stage]
            exchanges_messages = item.exchanges_messages
            if exchanges_messages:
                source = position - 1 if item.forward else position + 1
                if 0 <= source <= self._last:
                    made_at = self._ends.get((item.forward, source, item.micro_batch))
                    if made_at is None:
                        break
                    begins_at = max(begins_at, made_at)
                self.takes[item.forward, position, item.micro_batch] = stage, len(starts)
            starts.append(begins_at)
            self._clocks[stage] = begins_at + (1 if item.forward else PASS_DURATIONS[item.part])
            if exchanges_messages:
                self._ends[item.forward, position, item.micro_batch] = self._clocks[stage]
        return len(starts) > before


def deadlock_at(kind: ScheduleKind, orders: Sequence[tuple[Pass, ...]]) -> tuple[int, Pass] | None:
    """A stage and its pass that waits for itself, through other passes; None where none does."""
    step = _IdealStep(kind, orders)
    for stage, (starts, order) in enumerate(zip(step.starts, orders, strict=True)):
        if len(starts) < len(order):
            return stage, order[len(starts)]
    return None


def same_stage_input(program: Program, stage: int, chunk: int, forward: bool) -> bool:
    """Whether what a pass needs was made on the same stage, as at the turn of a V."""
    kind, stages = program.schedule.kind, len(program.stages)
    position = chunk_position(kind, stage, chunk, stages)
    source = position - 1 if forward else position + 1
    if not 0 <= source < stages * program.chunks_per_stage:
        return False
    return chunk_location(kind, source, stages)[0] == stage


__all__ = ["all_send_buffer_releases", "deadlock_at", "same_stage_input", "send_buffer_release"]
