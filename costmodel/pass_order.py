"""All passes of a step in one order in which each comes after what it waits for.

The order, and what each pass waits for, depend on the pipeline's shape alone, so they are found
once for all plans of a shape; a simulation then goes through the passes once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from ..spec.schedule import ScheduleKind, chunk_position
from .stage_passes import StagePasses, stage_passes

Numbers = NDArray[np.int32]
NOT_YET = -1


@dataclass(frozen=True, slots=True, eq=False)
class PassOrder:
    """The passes of all stages, one after another.

    Args:
        stages: the stage of each pass, shape (passes,).
        rows: its kind, as a number into that stage's kinds.
        sources: the pass whose message it waits for; ``passes`` where it waits for none.
        places: for each stage, where its own passes stand, in the order it runs them.
    """

    stages: Numbers
    rows: Numbers
    sources: Numbers
    places: tuple[Numbers, ...]


@lru_cache(maxsize=128)
def pass_order(kind: ScheduleKind, stages: int, chunks: int, micro_batches: int) -> PassOrder:
    """The passes of a pipeline whose passes do not overlap in pairs; arguments as ``stage_order``.

    Raises:
        RuntimeError: the schedule waits for itself.
    """
    positions = stages * chunks
    made = {forward: [[NOT_YET] * micro_batches for _ in range(positions)]
            for forward in (True, False)}  # fmt: skip
    pending = [
        _Stage(
            kind, number, stage_passes(kind, number, stages, chunks, micro_batches), stages, made
        )
        for number in range(stages)
    ]
    every, total = list(pending), 0
    order: list[int] = []
    while pending:
        for stage in pending:
            count = stage.advance(len(order))
            order += repeat(stage.number, count)
        if len(order) == total:
            raise RuntimeError("the schedule waits for itself")
        total = len(order)
        pending = [stage for stage in reversed(pending) if len(stage.places) < len(stage.rows)]
    found, rows = np.array(order, dtype=np.int32), np.empty(total, dtype=np.int32)
    sources, places = np.empty(total, dtype=np.int32), []
    for stage in every:
        places.append(np.array(stage.places, dtype=np.int32))
        rows[places[-1]] = stage.rows
        sources[places[-1]] = stage.sources
    sources[sources == NOT_YET] = total
    return PassOrder(found, rows, sources, tuple(places))


class _Stage:
    """One stage while the order is found: how far it has come."""

    def __init__(
        self,
        kind: ScheduleKind,
        number: int,
        passes: StagePasses,
        stages: int,
        made: dict[bool, list[list[int]]],
    ) -> None:
        self.number = number
        self.rows: list[int] = passes.rows.tolist()
        self.places: list[int] = []
        self.sources: list[int] = []
        self._order = passes.order
        self._ends: list[tuple[list[int] | None, list[int] | None]] = []
        for each in passes.kinds:
            position = chunk_position(kind, number, each.chunk, stages)
            source = position - 1 if each.forward else position + 1
            lists = made[each.forward]
            whole = each.part != "weight"
            waits_for = lists[source] if whole and 0 <= source < len(lists) else None
            self._ends.append((waits_for, lists[position] if whole else None))

    def advance(self, place: int) -> int:
        """Put passes into the order from ``place`` on until one's input is missing; how many."""
        first = len(self.places)
        for number in range(first, len(self.rows)):
            waits_for, own = self._ends[self.rows[number]]
            micro_batch = self._order[number][2]
            source = NOT_YET
            if waits_for is not None:
                source = waits_for[micro_batch]
                if source == NOT_YET:
                    break
            self.sources.append(source)
            self.places.append(place)
            if own is not None:
                own[micro_batch] = place
            place += 1
        return len(self.places) - first
