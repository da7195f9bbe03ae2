"""All passes of a step in one order in which each comes after what it waits for.

A *group* is what starts together on a stage: a pass, or two that overlap. The order of groups, and
what each waits for, depend on the pipeline's shape alone, so they are found once for all plans of
a shape; a simulation then goes through the groups once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...spec.schedules.action_text import ActionLines
from ...spec.schedules.passes import Pass
from ...spec.schedules.stage_order import ScheduleKind, chunk_position
from ..lowering.stage_passes import PassKind, StagePasses, concurrent_groups, stage_passes

GroupNumbers = NDArray[np.int32]
Producers = list[int]
"""Of each micro-batch, the group that made something of it, or MISSING."""
NONE = 0
"""Where a pass waits for nothing; groups are counted from 1."""
MISSING = -1


@dataclass(frozen=True, slots=True, eq=False)
class PassOrder:
    """The groups of all stages, one after another, counted from 1.

    Args:
        kinds: what each is, shape (groups,), as a number into what starts together on the first
            stage, then on the second, and so on.
        sources: the groups whose messages its first pass and its second wait for, or NONE, shape
            (passes of a group, groups).
        before: the group that its stage runs before it, or NONE.
        places: for each stage its own groups, as it runs them, shape (groups of the stage,).
    """

    kinds: GroupNumbers
    sources: GroupNumbers
    before: GroupNumbers
    places: tuple[GroupNumbers, ...]


@lru_cache(maxsize=128)
def pass_order(
    kind: ScheduleKind, stages: int, chunks: int, micro_batches: int, lines: ActionLines = None
) -> PassOrder:
    """The groups of a pipeline; arguments as ``order_of``.

    Raises:
        RuntimeError: the schedule waits for itself.
    """
    positions = [
        [chunk_position(kind, stage, chunk, stages) for chunk in range(chunks)]
        for stage in range(stages)
    ]
    passes = [stage_passes(kind, s, stages, chunks, micro_batches, lines) for s in range(stages)]
    width = max(len(group) for own in passes for group in own.concurrent_groups)
    made = _ProducerTable(stages * chunks, micro_batches)
    every = [_Stage(*each, made, width) for each in zip(passes, positions, strict=True)]
    pending, total = list(every), 0
    while pending:
        before = total
        for stage in pending:
            total += stage.advance(total + 1)
        if total == before:
            raise RuntimeError("the schedule waits for itself")
        pending = [stage for stage in reversed(pending) if len(stage.places) < len(stage.kinds)]
    return _joined(every, total, width)


class _ProducerTable:
    """What passes have made so far, by direction and the position of their chunk."""

    def __init__(self, positions: int, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self._lists = {
            forward: [self.nothing(MISSING) for _ in range(positions)] for forward in (True, False)
        }
        self.no_input = self.nothing(NONE)

    def nothing(self, number: int) -> Producers:
        """A list in which no pass made anything."""
        return [number] * self.micro_batches

    def taken_by(self, kind: PassKind, position: int) -> Producers:
        """What a kind of pass waits for."""
        if kind.part == "weight":
            return self.no_input
        source = position - 1 if kind.forward else position + 1
        lists = self._lists[kind.forward]
        return lists[source] if 0 <= source < len(lists) else self.no_input

    def by(self, kind: PassKind, position: int) -> Producers:
        """What a kind of pass makes: nobody takes gradients of weights."""
        whole = kind.part != "weight"
        return self._lists[kind.forward][position] if whole else self.nothing(MISSING)


class _Stage:
    """One stage while the order is found: how far it has come."""

    def __init__(
        self, passes: StagePasses, positions: Sequence[int], made: _ProducerTable, width: int
    ) -> None:
        self.kind_count = len(passes.concurrent_groups)
        self.kinds: list[int] = passes.groups.tolist()
        self.places: list[int] = []
        self.sources: list[list[int]] = []
        self._micro_batches = _micro_batches(passes.order, width)
        self._ends = []
        for group in passes.concurrent_groups:
            takes = [made.taken_by(each, positions[each.chunk]) for each in group]
            takes += [made.no_input] * (width - len(group))
            self._ends.append((takes, [made.by(each, positions[each.chunk]) for each in group]))

    def advance(self, place: int) -> int:
        """Number groups from ``place`` on until one's input is missing; how many there were."""
        first = len(self.places)
        for number in range(first, len(self.kinds)):
            takes, makes = self._ends[self.kinds[number]]
            own = self._micro_batches[number]
            sources = [made[m] for made, m in zip(takes, own, strict=True)]
            if MISSING in sources:
                break
            for made, m in zip(makes, own, strict=False):  # fewer, where one pass is alone
                made[m] = place
            self.sources.append(sources)
            self.places.append(place)
            place += 1
        return len(self.places) - first


def _micro_batches(order: tuple[Pass, ...], width: int) -> list[tuple[int, ...]]:
    """The micro-batches of the passes of each group; any for those that it lacks."""
    found = (tuple(item.micro_batch for item in group) for group in concurrent_groups(order))
    return [(own * width)[:width] for own in found]


def _joined(every: list[_Stage], total: int, width: int) -> PassOrder:
    """The groups of all stages in order."""
    kinds, before = (np.zeros(total, dtype=np.int32) for _ in range(2))
    sources = np.zeros((width, total), dtype=np.int32)
    places, first = [], 0
    for stage in every:
        own = np.array(stage.places, dtype=np.int32)
        kinds[own - 1] = np.array(stage.kinds, dtype=np.int32) + first
        sources[:, own - 1] = np.array(stage.sources, dtype=np.int32).T
        before[own[1:] - 1] = own[:-1]
        places.append(own)
        first += stage.kind_count
    return PassOrder(kinds, sources, before, tuple(places))
