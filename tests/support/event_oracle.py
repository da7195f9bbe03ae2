"""A second, plain discrete-event simulation of pipeline passes, for comparison.

Passes are jobs of a queue a stage; a job is ready when its stage is free and its message has
arrived. Events are taken from a heap in the order of time, unlike the simulator under test,
which sweeps stage by stage.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from shardwright.spec.schedule import Pass

Durations = Callable[[int, Pass], float]
"""Seconds of a pass of a stage."""
Travel = Mapping[tuple[bool, int], float]
"""Seconds of the message that leaves a position (chunk · stages + stage) in a direction."""


def makespan(orders: Sequence[Sequence[Pass]], durations: Durations, travel: Travel) -> float:
    """When the last pass ends; an AssertionError if the passes wait for one another."""
    return max(ends(orders, durations, travel).values())


def ends(
    orders: Sequence[Sequence[Pass]], durations: Durations, travel: Travel
) -> dict[tuple[int, Pass], float]:
    """End of every pass by (stage, pass)."""
    stages = len(orders)
    positions = stages * (1 + max(item.chunk for item in orders[0]))
    arrived: dict[tuple[bool, int, int], float] = {}
    done: dict[tuple[int, Pass], float] = {}
    place, free = [0] * stages, [0.0] * stages
    events: list[tuple[float, int]] = [(0.0, stage) for stage in range(stages)]
    waiting: dict[tuple[bool, int, int], int] = {}
    while events:
        now, stage = heapq.heappop(events)
        if place[stage] == len(orders[stage]) or now < free[stage]:
            continue
        item = orders[stage][place[stage]]
        position = item.chunk * stages + stage
        source = position + (-1 if item.forward else 1)
        if 0 <= source < positions:
            key = (item.forward, position, item.micro_batch)
            if key not in arrived:
                waiting[key] = stage
                continue
            if arrived[key] > now:
                heapq.heappush(events, (arrived[key], stage))
                continue
        end = now + durations(stage, item)
        done[stage, item] = free[stage] = end
        place[stage] += 1
        heapq.heappush(events, (end, stage))
        target = position + (1 if item.forward else -1)
        if 0 <= target < positions:
            key = (item.forward, target, item.micro_batch)
            arrived[key] = end + travel.get((item.forward, position), 0.0)
            if key in waiting:
                receiver = waiting.pop(key)
                heapq.heappush(events, (max(arrived[key], free[receiver]), receiver))
    assert all(place[s] == len(order) for s, order in enumerate(orders)), "deadlock"
    return done
