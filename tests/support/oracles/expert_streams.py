"""Chunks of experts' rows, event by event: what the closed expression must equal."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardwright.costmodel.pricing.expert_streams import ChunkSeconds


@dataclass
class _Task:
    stream: str
    seconds: float
    after: list[_Task] = field(default_factory=list)
    end_s: float | None = None


def simulated_s(chunks: int, each: ChunkSeconds, window_s: float = 0.0) -> float:
    """Seconds until the last chunk is back and the last weight gradient is there.

    Each stream runs its tasks in the order of its queue, and a task waits for those before it in
    its chunk: the reference's schedule, with a window between dispatches and combines.
    """
    dispatches = [_Task("outer", each.dispatch) for _ in range(chunks)]
    gathers = [_Task("inner", each.gather, [task]) for task in dispatches]
    products = [_Task("device", each.experts, [task]) for task in gathers]
    weights = [_Task("device", each.weights, [task]) for task in products]
    scatters = [_Task("inner", each.scatter, [task]) for task in products]
    combines = [_Task("outer", each.combine, [task]) for task in scatters]
    device = [task for pair in zip(products, weights, strict=True) for task in pair]
    queues = {
        "outer": [*dispatches, _Task("outer", window_s), *combines],
        "inner": [*gathers, *scatters],
        "device": device,
    }
    free = dict.fromkeys(queues, 0.0)
    while any(queues.values()):
        ready = {
            name: max([free[name], *(task.end_s or 0.0 for task in queue[0].after)])
            for name, queue in queues.items()
            if queue and all(task.end_s is not None for task in queue[0].after)
        }
        name = min(ready, key=lambda stream: ready[stream])
        task = queues[name].pop(0)
        task.end_s = free[name] = ready[name] + task.seconds
    return max(free.values())
