"""In what order the passes of a pipeline can be played, and what each of them waits for.

It depends on the schedule alone, so a pipeline that is played often is put in order once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..costmodel.stage_passes import StagePasses, Together, stage_passes
from ..spec.schedule import chunk_position
from .chains import Pipeline, groups_of
from .pass_table import kind_number

NOTHING = -1
"""In place of a group: what was before the step."""
Input = tuple[int, int]
"""The group that makes an input, and the number of its message: into a position, and for
backward passes as many further on as there are positions."""


@dataclass(frozen=True, slots=True)
class PlayOrder:
    """Groups of passes that start together, each after all that it waits for.

    ``kind``: of each group, its number in ``distinct``: a stage and what starts together there.
    ``before``: the group that its stage runs before it, -1 for none. ``inputs``: the first and the
    second that it waits for from other groups, each as a list of the groups and one of the messages
    (see `Input`); ``NOTHING`` where there is none. ``last``: of each stage, its last group.
    ``places``: of each kind of group, the position and the kind of its passes.
    """

    positions: int
    kind: list[int]
    before: list[int]
    inputs: tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]
    last: list[int]
    distinct: list[tuple[int, Together]]
    places: list[tuple[tuple[int, int], ...]]


@lru_cache(maxsize=4)
def play_order(shape: Pipeline) -> PlayOrder:
    """The order of a pipeline; some megabytes for those of many passes, so few are kept.

    Args:
        shape: schedule, stages, chunks a stage, micro-batches.
    """
    return _Playing(shape).order()


class _Stage:
    """A stage while its passes are put in order: its groups, and how many have their place."""

    def __init__(self, stage: int, passes: StagePasses, first_kind: int) -> None:
        self.stage, self.passes = stage, passes
        self.groups = list(groups_of(passes))
        numbers = passes.groups if passes.groups is not None else passes.rows.tolist()
        self.kinds = [first_kind + number for number in numbers]
        self.done, self.last = 0, -1


class _Playing:
    def __init__(self, shape: Pipeline) -> None:
        kind, stages, chunks, microbatches = shape
        self.shape, self.positions = shape, stages * chunks
        self.found = PlayOrder(self.positions, [], [], (([], []), ([], [])), [], [], [])
        self.stages: list[_Stage] = []
        self.made: dict[tuple[bool, int, int], int] = {}
        for stage in range(stages):
            passes = stage_passes(kind, stage, stages, chunks, microbatches)
            self.stages.append(_Stage(stage, passes, len(self.found.distinct)))
            for together in passes.together:
                self.found.distinct.append((stage, together))
                self.found.places.append(
                    tuple((self._position(stage, k.chunk), kind_number(k)) for k in together)
                )

    def _position(self, stage: int, chunk: int) -> int:
        return chunk_position(self.shape[0], stage, chunk, self.shape[1])

    def order(self) -> PlayOrder:
        """Take groups from every stage in turn, as far as their inputs are there."""
        pending = list(self.stages)
        while pending:
            if not any([self._advance(stage) for stage in pending]):  # noqa: C419 (all advance)
                raise RuntimeError("the schedule waits for itself")
            pending = [stage for stage in reversed(pending) if stage.done < len(stage.groups)]
        self.found.last.extend(stage.last for stage in self.stages)
        return self.found

    def _advance(self, stage: _Stage) -> bool:
        """Put groups of a stage in order until an input is missing; whether any was."""
        first = stage.done
        while stage.done < len(stage.groups):
            inputs = tuple(self._inputs(stage))
            if any(source < 0 for source, _ in inputs):
                break
            number = len(self.found.kind)
            self.found.kind.append(stage.kinds[stage.done])
            self.found.before.append(stage.last)
            for which, (sources, ways) in enumerate(self.found.inputs):
                source, way = inputs[which] if which < len(inputs) else (NOTHING, NOTHING)
                sources.append(source)
                ways.append(way)
            for place in stage.groups[stage.done]:
                item = stage.passes.order[place]
                if item.part != "weight":
                    position = self._position(stage.stage, item.chunk)
                    self.made[item.forward, position, item.micro_batch] = number
            stage.last = number
            stage.done += 1
        return stage.done > first

    def _inputs(self, stage: _Stage) -> Iterator[Input]:
        """What the next group of a stage waits for; -1 for what nothing made yet."""
        for place in stage.groups[stage.done]:
            item = stage.passes.order[place]
            if item.part == "weight":
                continue
            position = self._position(stage.stage, item.chunk)
            source = position - 1 if item.forward else position + 1
            if 0 <= source < self.positions:
                made = self.made.get((item.forward, source, item.micro_batch), -1)
                yield made, position if item.forward else self.positions + position
