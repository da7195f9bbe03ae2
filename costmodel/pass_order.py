"""All passes of a step in one order in which each comes after what it waits for.

The order, and what each pass waits for, depend on the pipeline's shape alone, so they are found
once for all plans of a shape; a simulation then goes through the passes once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..spec.orders import Lines
from ..spec.schedule import ScheduleKind, chunk_position
from .stage_passes import StagePasses, stage_passes

Numbers = NDArray[np.int32]
NONE = 0
"""Where a pass waits for nothing; the passes are counted from 1."""


@dataclass(frozen=True, slots=True, eq=False)
class PassOrder:
    """The passes of all stages, one after another, counted from 1.

    Args:
        kinds: what each is, shape (passes,), as a number into the kinds of passes of the first
            stage, then of the second, and so on.
        sources: the pass whose message it waits for, or NONE.
        before: the pass that its stage runs before it, or NONE.
        places: for each stage its own passes, as it runs them, shape (passes of the stage,).
    """

    kinds: Numbers
    sources: Numbers
    before: Numbers
    places: tuple[Numbers, ...]


@lru_cache(maxsize=128)
def pass_order(
    kind: ScheduleKind, stages: int, chunks: int, micro_batches: int, lines: Lines = None
) -> PassOrder:
    """The passes of a pipeline whose passes do not overlap in pairs; arguments as ``order_of``.

    Raises:
        RuntimeError: the schedule waits for itself.
    """
    made = {
        forward: [[NONE] * micro_batches for _ in range(stages * chunks)]
        for forward in (True, False)
    }
    every = []
    for number in range(stages):
        passes = stage_passes(kind, number, stages, chunks, micro_batches, lines)
        every.append(_Stage(kind, number, passes, stages, made))
    pending, total = list(every), 0
    while pending:
        before = total
        for stage in pending:
            total += stage.advance(total + 1)
        if total == before:
            raise RuntimeError("the schedule waits for itself")
        pending = [stage for stage in reversed(pending) if len(stage.places) < len(stage.rows)]
    kinds, sources, earlier = (np.zeros(total, dtype=np.int32) for _ in range(3))
    places, first = [], 0
    for stage in every:
        own = np.array(stage.places, dtype=np.int32)
        kinds[own - 1] = np.array(stage.rows, dtype=np.int32) + first
        sources[own - 1] = stage.sources
        earlier[own[1:] - 1] = own[:-1]
        places.append(own)
        first += stage.kind_count
    return PassOrder(kinds, sources, earlier, tuple(places))


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
        self.kind_count = len(passes.kinds)
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
        """Number passes from ``place`` on until one's input is missing; how many there were."""
        first = len(self.places)
        for number in range(first, len(self.rows)):
            waits_for, own = self._ends[self.rows[number]]
            micro_batch = self._order[number][2]
            source = NONE
            if waits_for is not None:
                source = waits_for[micro_batch]
                if source == NONE:
                    break
            self.sources.append(source)
            self.places.append(place)
            if own is not None:
                own[micro_batch] = place
            place += 1
        return len(self.places) - first
