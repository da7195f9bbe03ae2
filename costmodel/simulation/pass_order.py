"""Topological order of all passes of a step.

A *group* starts together on a stage: one pass, or two that overlap. The order of groups and their
dependencies depend only on the pipeline's shape, so they are computed once for all plans of a
shape; a simulation then goes through the groups once.
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
"""For each micro-batch, the group that produced its tensor, or MISSING."""
NONE = 0
"""No dependency; groups are counted from 1."""
MISSING = -1


@dataclass(frozen=True, slots=True, eq=False)
class PassOrder:
    """Groups of all stages in topological order, counted from 1.

    Args:
        kinds: kind of each group, shape (groups,), as a number into the concurrent groups of the
            first stage, then of the second, and so on.
        sources: groups whose messages its first and second pass wait for, or NONE, shape (passes
        per
            group, groups).
        before: preceding group of the same stage, or NONE.
        places: for each stage its own groups in execution order, shape (groups of the stage,).
    """

    kinds: GroupNumbers
    sources: GroupNumbers
    before: GroupNumbers
    places: tuple[GroupNumbers, ...]


@lru_cache(maxsize=128)
def pass_order(
    kind: ScheduleKind, stages: int, chunks: int, micro_batches: int, lines: ActionLines = None
) -> PassOrder:
    """Order the groups of a pipeline; arguments as ``order_of``.

    Raises:
        RuntimeError: the schedule waits for itself.
    """
    positions = [
        [chunk_position(kind, stage, chunk, stages) for chunk in range(chunks)]
        for stage in range(stages)
    ]
    passes = [stage_passes(kind, s, stages, chunks, micro_batches, lines) for s in range(stages)]
    width = max(len(group) for entry in passes for group in entry.concurrent_groups)
    producers = _ProducerTable(stages * chunks, micro_batches)
    all_stages = [
        _Stage(*arguments, producers, width) for arguments in zip(passes, positions, strict=True)
    ]
    pending, total = list(all_stages), 0
    while pending:
        before = total
        for stage in pending:
            total += stage.advance(total + 1)
        if total == before:
            raise RuntimeError("the schedule waits for itself")
        pending = [stage for stage in reversed(pending) if len(stage.places) < len(stage.kinds)]
    return _merged(all_stages, total, width)


class _ProducerTable:
    """Producers so far, by direction and position of their chunk."""

    def __init__(self, positions: int, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self._lists = {
            forward: [self.nothing(MISSING) for _ in range(positions)] for forward in (True, False)
        }
        self.no_input = self.nothing(NONE)

    def nothing(self, number: int) -> Producers:
        """A list without producers."""
        return [number] * self.micro_batches

    def inputs_of(self, kind: PassKind, position: int) -> Producers:
        """Producers of the input of a kind of pass."""
        if kind.part == "weight":
            return self.no_input
        source = position - 1 if kind.forward else position + 1
        lists = self._lists[kind.forward]
        return lists[source] if 0 <= source < len(lists) else self.no_input

    def outputs_of(self, kind: PassKind, position: int) -> Producers:
        """Producers of a kind of pass's output; weight gradients have no consumer."""
        has_consumer = kind.part != "weight"
        return self._lists[kind.forward][position] if has_consumer else self.nothing(MISSING)


class _Stage:
    """Progress of one stage while the order is built."""

    def __init__(
        self, passes: StagePasses, positions: Sequence[int], producers: _ProducerTable, width: int
    ) -> None:
        self.kind_count = len(passes.concurrent_groups)
        self.kinds: list[int] = passes.groups.tolist()
        self.places: list[int] = []
        self.sources: list[list[int]] = []
        self._micro_batches = _micro_batches(passes.order, width)
        self._inputs_and_outputs = []
        for group in passes.concurrent_groups:
            inputs = [producers.inputs_of(kind, positions[kind.chunk]) for kind in group]
            inputs += [producers.no_input] * (width - len(group))
            self._inputs_and_outputs.append(
                (inputs, [producers.outputs_of(kind, positions[kind.chunk]) for kind in group])
            )

    def advance(self, number_of_group: int) -> int:
        """Number groups from ``place`` until an input is missing; returns how many."""
        first = len(self.places)
        for number in range(first, len(self.kinds)):
            inputs, outputs = self._inputs_and_outputs[self.kinds[number]]
            micro_batches = self._micro_batches[number]
            sources = [producers[m] for producers, m in zip(inputs, micro_batches, strict=True)]
            if MISSING in sources:
                break
            for producers, m in zip(
                outputs, micro_batches, strict=False
            ):  # fewer for a single pass
                producers[m] = number_of_group
            self.sources.append(sources)
            self.places.append(number_of_group)
            number_of_group += 1
        return len(self.places) - first


def _micro_batches(order: tuple[Pass, ...], width: int) -> list[tuple[int, ...]]:
    by_group = (tuple(item.micro_batch for item in group) for group in concurrent_groups(order))
    return [(micro_batches * width)[:width] for micro_batches in by_group]


def _merged(all_stages: list[_Stage], total: int, width: int) -> PassOrder:
    """Groups of all stages in order."""
    kinds, before = (np.zeros(total, dtype=np.int32) for _ in range(2))
    sources = np.zeros((width, total), dtype=np.int32)
    groups_by_stage, first = [], 0
    for stage in all_stages:
        groups = np.array(stage.places, dtype=np.int32)
        kinds[groups - 1] = np.array(stage.kinds, dtype=np.int32) + first
        sources[:, groups - 1] = np.array(stage.sources, dtype=np.int32).T
        before[groups[1:] - 1] = groups[:-1]
        groups_by_stage.append(groups)
        first += stage.kind_count
    return PassOrder(kinds, sources, before, tuple(groups_by_stage))
