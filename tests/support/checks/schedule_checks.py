"""What every order of passes must be, whatever its schedule: complete, causal, never stuck."""

from __future__ import annotations

import random
from collections.abc import Sequence

from oracles.event_oracle import jobs_of, position_of

from shardwright.spec.rules.plan_rules import schedule_violation
from shardwright.spec.schedules.stage_order import (
    ALL_KINDS,
    V_KINDS,
    Pass,
    ScheduleKind,
    stage_order,
)

Shape = tuple[ScheduleKind, int, int, int]
"""Kind, stages, chunks a stage, micro-batches."""
MOST_STAGES = 12
MOST_LAYERS = 10**6


def random_shape(source: random.Random) -> Shape:
    """A legal shape: every kind equally often, short steps as often as long ones."""
    kind = source.choice(ALL_KINDS)
    several = kind == "interleaved" or kind in V_KINDS
    stages = source.randint(1 if kind in ("gpipe", "1f1b") else 2, MOST_STAGES)
    chunks = 2 if kind in V_KINDS else source.randint(2, 4) if several else 1
    micro_batches = source.randint(1, source.choice((4, 12, 30)))
    if kind == "interleaved":
        micro_batches = stages * source.randint(1, 3)
    if kind == "dualpipe":
        micro_batches += 2 * stages - 1
    assert schedule_violation(kind, stages, chunks, micro_batches, MOST_LAYERS) is None
    return kind, stages, chunks, micro_batches


def orders(shape: Shape) -> list[tuple[Pass, ...]]:
    """The order of every stage."""
    kind, stages, chunks, micro_batches = shape
    return [stage_order(kind, stage, stages, chunks, micro_batches) for stage in range(stages)]


def fault(shape: Shape, found: Sequence[Sequence[Pass]]) -> str | None:
    """What is wrong with the orders of a shape; None if nothing is."""
    _, _, chunks, micro_batches = shape
    for stage, order in enumerate(found):
        if reason := _incomplete(order, chunks * micro_batches):
            return f"{shape}, stage {stage}: {reason}"
    if left := passes_left(shape, found):
        return f"{shape}: {left} passes never start"
    return None


def _incomplete(order: Sequence[Pass], pairs: int) -> str | None:
    """Each micro-batch of each chunk: forward, then all of backward, each once and in order."""
    stages_of_work: dict[tuple[str, int], int] = {}
    done: dict[str, set[tuple[int, int]]] = {"F": set(), "B": set(), "W": set()}
    for item in order:
        pair = (item.chunk, item.micro_batch)
        for letter in _letters(item):
            if stages_of_work.get((letter, item.chunk), 0) != item.micro_batch:
                return f"{letter} of {pair} is out of turn"
            stages_of_work[letter, item.chunk] = item.micro_batch + 1
            before = {"F": "", "B": "F", "W": "B"}[letter]
            if before and pair not in done[before]:
                return f"{letter} of {pair} comes before its {before}"
            done[letter].add(pair)
    counts = {letter: len(found) for letter, found in done.items()}
    return None if set(counts.values()) == {pairs} else f"passes are missing: {counts}"


def _letters(item: Pass) -> str:
    return "F" if item.forward else {"whole": "BW", "input": "B", "weight": "W"}[item.part]


def passes_left(shape: Shape, found: Sequence[Sequence[Pass]]) -> int:
    """Jobs that can never start because they wait for each other; 0 without a deadlock."""
    kind, stages, chunks, _ = shape
    last = stages * chunks - 1
    made: set[tuple[bool, int, int]] = set()
    queues = [[_links(kind, stage, stages, last, job) for job in jobs_of(order)]
              for stage, order in enumerate(found)]  # fmt: skip
    place, moved = [0] * stages, True
    while moved:
        moved = False
        for stage, queue in enumerate(queues):
            while place[stage] < len(queue) and made.issuperset(queue[place[stage]][0]):
                made.update(queue[place[stage]][1])
                place[stage] += 1
                moved = True
    return sum(len(queue) - place[stage] for stage, queue in enumerate(queues))


Keys = list[tuple[bool, int, int]]


def _links(
    kind: ScheduleKind, stage: int, stages: int, last: int, job: tuple[Pass, ...]
) -> tuple[Keys, Keys]:
    """What a job waits for, and what it makes: (direction, position, micro-batch)."""
    needs: Keys = []
    makes: Keys = []
    for item in job:
        if item.part == "weight":
            continue
        position = position_of(kind, stage, item.chunk, stages)
        source = position + (-1 if item.forward else 1)
        if 0 <= source <= last:
            needs.append((item.forward, source, item.micro_batch))
        makes.append((item.forward, position, item.micro_batch))
    return needs, makes


def held(order: Sequence[Pass], until: str = "W") -> int:
    """Most micro-batches of chunks that a stage holds, until their input gradient or weights'."""
    now = most = 0
    for item in order:
        letters = _letters(item)
        now += ("F" in letters) - (until in letters)
        most = max(most, now)
    return most
