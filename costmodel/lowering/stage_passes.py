"""Passes of a stage in order, grouped by kind.

Time and memory of a pass depend only on its kind, and kinds and order only on the pipeline's shape,
so they are computed once per shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...spec.plan.plan import Plan
from ...spec.schedules.action_text import ActionLines, order_of
from ...spec.schedules.passes import BackwardPart, Pass
from ...spec.schedules.stage_order import ScheduleKind


class PassKind(NamedTuple):
    """Everything behind the time and memory of a pass."""

    forward: bool
    chunk: int
    first: bool
    last: bool
    part: BackwardPart = "whole"


ConcurrentPasses = tuple[PassKind, ...]
"""Passes that start together: one, or an overlapping pair."""


def concurrent_groups(order: tuple[Pass, ...]) -> Iterator[tuple[Pass, ...]]:
    """Passes of an order, overlapping ones as pairs."""
    items = iter(order)
    for item in items:
        yield (item, next(items)) if item.overlaps else (item,)


def kind_of(item: Pass, last_micro_batch: int) -> PassKind:
    """The kind of a pass."""
    first, last = item.micro_batch == 0, item.micro_batch == last_micro_batch
    return PassKind(item.forward, item.chunk, first, last, item.part)


@dataclass(frozen=True, slots=True, eq=False)
class StagePasses:
    """Passes of a stage: ``order[i]`` is of kind ``kinds[rows[i]]``.

    ``groups``: passes that start together, as indices into ``concurrent_groups``: an overlapping
    pair, or a single pass.
    """

    order: tuple[Pass, ...]
    kinds: tuple[PassKind, ...]
    rows: NDArray[np.int64]
    concurrent_groups: tuple[ConcurrentPasses, ...]
    groups: NDArray[np.int64]
    counts: dict[ConcurrentPasses, int]

    def sizes(self) -> NDArray[np.int64]:
        """Passes of each of ``groups``, shape (groups,)."""
        return np.array([len(kinds) for kinds in self.concurrent_groups])[self.groups]


def passes_of(plan: Plan, stage: int) -> StagePasses:
    """Passes of a stage of a plan."""
    program = plan.program
    schedule = program.schedule
    stages, chunks = len(program.stages), program.chunks_per_stage
    count = schedule.microbatches
    return stage_passes(schedule.kind, stage, stages, chunks, count, schedule.actions)


@lru_cache(maxsize=512)
def stage_passes(
    kind: ScheduleKind,
    stage: int,
    stages: int,
    chunks: int,
    micro_batches: int,
    lines: ActionLines = None,
) -> StagePasses:
    """Passes of ``stage`` in execution order; arguments as ``order_of``."""
    order = order_of(kind, stage, stages, chunks, micro_batches, lines)
    last = micro_batches - 1
    numbers: dict[tuple[bool, int, bool, bool, BackwardPart], int] = {}
    rows = [
        numbers.setdefault((forward, chunk, m == 0, m == last, part), len(numbers))
        for forward, chunk, m, part, _ in order
    ]
    kinds = tuple(PassKind(*key) for key in numbers)
    pairs: dict[tuple[int, ...], int] = {(number,): number for number in range(len(kinds))}
    groups = rows
    if any(item.overlaps for item in order):
        pairs = {}
        groups = [pairs.setdefault(group, len(pairs)) for group in _grouped(order, rows)]
    kind_groups = tuple(tuple(kinds[n] for n in group) for group in pairs)
    counts = {kind_groups[number]: count for number, count in sorted(Counter(groups).items())}
    return StagePasses(order, kinds, _numbers(rows), kind_groups, _numbers(groups), counts)


def _numbers(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _grouped(order: tuple[Pass, ...], rows: list[int]) -> Iterator[tuple[int, ...]]:
    position = 0
    while position < len(order):
        size = 2 if order[position].overlaps else 1
        yield tuple(rows[position : position + size])
        position += size
