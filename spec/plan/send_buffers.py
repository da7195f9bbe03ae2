"""Lifetime of a stage's send buffers, until the receive is posted.

A message is sent once both its ends have reached it. The receiver posts one pass ahead, so in
schedules with whole backwards, and in zero bubble, a send buffer is free when its sender starts the
second pass after the one that filled it. In a V a stage may be many passes ahead of those below it:
they receive much later, and it would wait for them while they wait for it.

There, and with explicit actions, the release is read off an ideal step, in which every pass takes
its usual share of time and messages none: the first pass that starts after the receiver posted.
However long passes really take, all waits then lead to earlier moments of that step and never form
a cycle.
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

PASSES_UNTIL_FREE = 2
"""Passes after which a send buffer is free where stages keep pace with each other."""
PASS_DURATIONS = {"whole": 2, "input": 1, "weight": 1}
"""Duration of a part of a backward in the ideal step, relative to a forward."""
Key = tuple[bool, int, int]
"""A pass by direction, position of its chunk in the model, and micro-batch."""


def send_buffer_release(program: Program, stage: int) -> tuple[int, ...] | None:
    """For each pass, the pass before which its buffer is free.

    Passes are counted from 0; one more than there are, or two, is the end of the step. A message
    to the stage itself, at the turn of a V, is free when it is received; a pass that sends nothing
    has its own successor.

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
    """:func:`send_buffer_release` for all stages."""
    step = _IdealStep(kind, orders)
    starts, receivers = step.starts, step.receivers
    releases = []
    for stage, order in enumerate(orders):
        stage_starts, positions = starts[stage], step.positions[stage]
        stage_releases = []
        for number, pass_ in enumerate(order):
            position = positions[pass_.chunk]
            received = (pass_.forward, position + (1 if pass_.forward else -1), pass_.micro_batch)
            if pass_.part == "weight" or received not in receivers:
                stage_releases.append(number + 1)
                continue
            receiver, receiving_pass = receivers[received]
            if receiver == stage:
                stage_releases.append(receiving_pass)
                continue
            posted_at = starts[receiver][receiving_pass - 1] if receiving_pass else -1
            release = number + PASSES_UNTIL_FREE
            while release < len(stage_starts) and stage_starts[release] <= posted_at:
                release += 1
            stage_releases.append(release)
        releases.append(tuple(stage_releases))
    return tuple(releases)


class _IdealStep:
    """Start time of every pass, and the receiving pass of each message."""

    def __init__(self, kind: ScheduleKind, orders: Sequence[tuple[Pass, ...]]) -> None:
        self.orders = orders
        self.starts: list[list[int]] = [[] for _ in orders]
        self.receivers: dict[Key, tuple[int, int]] = {}
        chunks = range(1 + max(pass_.chunk for pass_ in orders[0]))
        self.positions = [
            [chunk_position(kind, stage, chunk, len(orders)) for chunk in chunks]
            for stage in range(len(orders))
        ]
        self._last = len(orders) * len(chunks) - 1
        self._clocks = [0] * len(orders)
        self._ends: dict[Key, int] = {}
        progress = True
        while progress:
            advanced = [self._advance(stage) for stage in range(len(orders))]
            progress = any(advanced)

    def _advance(self, stage: int) -> bool:
        """Run passes of a stage until an input is missing.

        Return whether any ran.
        """
        starts, order = self.starts[stage], self.orders[stage]
        before, positions = len(starts), self.positions[stage]
        while len(starts) < len(order):
            pass_ = order[len(starts)]
            position = positions[pass_.chunk]
            start = self._clocks[stage]
            exchanges_messages = pass_.exchanges_messages
            if exchanges_messages:
                source = position - 1 if pass_.forward else position + 1
                if 0 <= source <= self._last:
                    sent_at = self._ends.get((pass_.forward, source, pass_.micro_batch))
                    if sent_at is None:
                        break
                    start = max(start, sent_at)
                self.receivers[pass_.forward, position, pass_.micro_batch] = stage, len(starts)
            starts.append(start)
            self._clocks[stage] = start + (1 if pass_.forward else PASS_DURATIONS[pass_.part])
            if exchanges_messages:
                self._ends[pass_.forward, position, pass_.micro_batch] = self._clocks[stage]
        return len(starts) > before


def deadlock_at(kind: ScheduleKind, orders: Sequence[tuple[Pass, ...]]) -> tuple[int, Pass] | None:
    """A stage and its pass that waits for itself, through other passes.

    None if none does.
    """
    step = _IdealStep(kind, orders)
    for stage, (starts, order) in enumerate(zip(step.starts, orders, strict=True)):
        if len(starts) < len(order):
            return stage, order[len(starts)]
    return None


def same_stage_input(program: Program, stage: int, chunk: int, forward: bool) -> bool:
    """True if a pass's input comes from the same stage (V turn)."""
    kind, stages = program.schedule.kind, len(program.stages)
    position = chunk_position(kind, stage, chunk, stages)
    source = position - 1 if forward else position + 1
    if not 0 <= source < stages * program.chunks_per_stage:
        return False
    return chunk_location(kind, source, stages)[0] == stage


__all__ = ["all_send_buffer_releases", "deadlock_at", "same_stage_input", "send_buffer_release"]
