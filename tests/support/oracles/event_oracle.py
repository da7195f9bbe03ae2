"""A second, plain discrete-event simulation of pipeline passes, for comparison.

Passes are jobs of a queue a stage; a job is ready when its stage is free and its message has
arrived. Events are taken from a heap in the order of time, unlike the simulator under test,
which sweeps stage by stage. Passes that overlap are one job: it takes as long as both.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from shardwright.spec.schedules.stage_order import Pass, ScheduleKind

Durations = Callable[[int, Pass], float]
"""Seconds of a pass of a stage."""
Travel = Mapping[tuple[bool, int], float]
"""Seconds of the message that leaves a position (part of the model) in a direction."""
Key = tuple[bool, int, int]
"""What a pass makes or waits for: direction, position, micro-batch."""


def makespan(
    orders: Sequence[Sequence[Pass]],
    durations: Durations,
    travel: Travel,
    kind: ScheduleKind = "1f1b",
) -> float:
    """When the last pass ends; an AssertionError if the passes wait for one another."""
    return max(ends(orders, durations, travel, kind).values())


def position_of(kind: ScheduleKind, stage: int, chunk: int, stages: int) -> int:
    """The part of the model that a chunk holds: round the stages, or down a V and up again."""
    if kind in ("zbv", "dualpipe"):
        return (stage, 2 * stages - 1 - stage)[chunk]
    return chunk * stages + stage


def jobs_of(order: Sequence[Pass]) -> list[tuple[Pass, ...]]:
    """The passes of an order, those that overlap together."""
    found: list[tuple[Pass, ...]] = []
    for item in order:
        if found and len(found[-1]) == 1 and found[-1][0].overlaps:
            found[-1] = (found[-1][0], item)
        else:
            found.append((item,))
    return found


def ends(
    orders: Sequence[Sequence[Pass]],
    durations: Durations,
    travel: Travel,
    kind: ScheduleKind = "1f1b",
    tails: Durations = lambda stage, item: 0.0,
) -> dict[tuple[int, Pass], float]:
    """End of every pass by (stage, pass); ``tails`` of passes no message waits for."""
    stages = len(orders)
    positions = stages * (1 + max(item.chunk for item in orders[0]))
    queues = [jobs_of(order) for order in orders]
    arrived: dict[Key, float] = {}
    done: dict[tuple[int, Pass], float] = {}
    place, free = [0] * stages, [0.0] * stages
    events: list[tuple[float, int]] = [(0.0, stage) for stage in range(stages)]
    waiting: dict[Key, int] = {}

    def needs(stage: int, item: Pass) -> Key | None:
        position = position_of(kind, stage, item.chunk, stages)
        inner = 0 <= position + (-1 if item.forward else 1) < positions
        return (item.forward, position, item.micro_batch) if inner else None

    while events:
        now, stage = heapq.heappop(events)
        if place[stage] == len(queues[stage]) or now < free[stage]:
            continue
        job = queues[stage][place[stage]]
        inputs = [needs(stage, item) for item in job if item.part != "weight"]
        missing = [key for key in inputs if key is not None and key not in arrived]
        if missing:
            waiting[missing[0]] = stage
            continue
        ready = max((arrived[key] for key in inputs if key is not None), default=0.0)
        if ready > now:
            heapq.heappush(events, (ready, stage))
            continue
        end = now + sum(durations(stage, item) for item in job)
        free[stage] = end
        place[stage] += 1
        heapq.heappush(events, (end, stage))
        for item in job:
            done[stage, item] = end
            position = position_of(kind, stage, item.chunk, stages)
            target = position + (1 if item.forward else -1)
            if item.part != "weight" and 0 <= target < positions:
                key = (item.forward, target, item.micro_batch)
                arrived[key] = end - tails(stage, item) + travel.get((item.forward, position), 0.0)
                if key in waiting:
                    receiver = waiting.pop(key)
                    heapq.heappush(events, (max(arrived[key], free[receiver]), receiver))
    assert all(place[s] == len(queue) for s, queue in enumerate(queues)), "deadlock"
    return done
