"""How long a stage keeps what it sends: until whoever needs it has made room for it.

A message moves when both its ends have come to it. The receiver makes room one pass ahead, so in
schedules with whole backwards, and in zero bubble, a message is gone when its sender begins the
second pass after the one that made it. In the shape of a V a stage may be many passes ahead of
those below it: it sends what they take much later, and would wait for them while they wait for it.

There the place is read off an ideal step, in which every pass takes its usual share of time and
messages none: the first pass that begins after the receiver has made room. Whatever passes really
take, all waits then lead to earlier moments of that step, so they never close to a ring.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from .passes import Pass
from .schedule import V_KINDS, ScheduleKind, chunk_place, chunk_position, stage_order

if TYPE_CHECKING:
    from .plan import Program

USUAL_PASSES = 2
"""After so many passes a message is gone where stages keep step with each other."""
UNITS = {"whole": 2, "input": 1, "weight": 1}
"""What a part of a backward takes in the ideal step, against a forward."""
Key = tuple[bool, int, int]
"""A pass by direction, position of its chunk in the model, and micro-batch."""


def sent_until(program: Program, stage: int) -> tuple[int, ...] | None:
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
    if stages == 1 or schedule.kind not in V_KINDS:
        return None
    return _places(schedule.kind, stages, program.chunks_per_stage, schedule.microbatches)[stage]


@lru_cache(maxsize=64)
def _places(
    kind: ScheduleKind, stages: int, chunks: int, micro_batches: int
) -> tuple[tuple[int, ...], ...]:
    orders = [stage_order(kind, s, stages, chunks, micro_batches) for s in range(stages)]
    return places_of(kind, orders)


def places_of(kind: ScheduleKind, orders: list[tuple[Pass, ...]]) -> tuple[tuple[int, ...], ...]:
    """:func:`sent_until` for all stages.

    Args:
        kind: says where chunks lie.
        orders: the passes of every stage.
    """
    stages = len(orders)
    starts, takes = _ideal_step(kind, orders)
    found = []
    for stage, order in enumerate(orders):
        own = starts[stage]
        places = []
        for number, item in enumerate(order):
            position = chunk_position(kind, stage, item.chunk, stages)
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


def _ideal_step(
    kind: ScheduleKind, orders: list[tuple[Pass, ...]]
) -> tuple[list[list[int]], dict[Key, tuple[int, int]]]:
    """When each pass of every stage begins, and which pass of which stage takes each message.

    Raises:
        RuntimeError: the orders wait for each other.
    """
    stages = len(orders)
    starts: list[list[int]] = [[] for _ in orders]
    clocks, ends = [0] * stages, dict[Key, int]()
    takes: dict[Key, tuple[int, int]] = {}
    last = stages * (1 + max(item.chunk for item in orders[0])) - 1
    pending = set(range(stages))
    while pending:
        before = len(ends), sum(map(len, starts))
        for stage in sorted(pending):
            order = orders[stage]
            while len(starts[stage]) < len(order):
                item = order[len(starts[stage])]
                position = chunk_position(kind, stage, item.chunk, stages)
                begins = clocks[stage]
                if item.part != "weight":
                    source = position - 1 if item.forward else position + 1
                    if 0 <= source <= last:
                        made = ends.get((item.forward, source, item.micro_batch))
                        if made is None:
                            break
                        begins = max(begins, made)
                    takes[item.forward, position, item.micro_batch] = stage, len(starts[stage])
                starts[stage].append(begins)
                clocks[stage] = begins + (1 if item.forward else UNITS[item.part])
                if item.part != "weight":
                    ends[item.forward, position, item.micro_batch] = clocks[stage]
            else:
                pending.discard(stage)
        if pending and before == (len(ends), sum(map(len, starts))):
            raise RuntimeError("the passes wait for each other")
    return starts, takes


def stays(program: Program, stage: int, chunk: int, forward: bool) -> bool:
    """Whether what a pass needs was made on the same stage, as at the turn of a V."""
    kind, stages = program.schedule.kind, len(program.stages)
    position = chunk_position(kind, stage, chunk, stages)
    source = position - 1 if forward else position + 1
    if not 0 <= source < stages * program.chunks_per_stage:
        return False
    return chunk_place(kind, source, stages)[0] == stage


__all__ = ["places_of", "sent_until", "stays"]
