"""Order of a pipeline's passes, with numbered positions and messages.

It depends on the schedule alone, so it is cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...costmodel.lowering.stage_passes import ConcurrentPasses, PassKind, stage_passes
from ...costmodel.simulation.pass_order import GroupNumbers, PassOrder, pass_order
from ...spec.schedules.stage_order import chunk_position
from ..tables.pass_kinds import kind_number
from .pass_chains import Pipeline

PassGroup = tuple[tuple[int, int], ...]
"""Passes that start together, one or two: the position of each, and the number of its kind."""


@dataclass(frozen=True, slots=True, eq=False)
class PassGroupOrder:
    """Groups of passes with a common start, counted from 1.

    ``stage_positions``: positions of each stage's chunks. ``order``: of the groups. ``before`` and
    ``sources``: predecessors in the order, as lists. ``last``: last group of each stage.
    ``distinct``: passes of each distinct group. ``messages``: number of each pass's awaited
    message, shape (passes of a group, distinct groups): that into a position, for backward passes
    offset by the number of positions; past those, none.
    """

    positions: int
    stage_positions: list[list[int]]
    order: PassOrder
    before: list[int]
    sources: list[list[int]]
    last: list[int]
    distinct: list[PassGroup]
    messages: GroupNumbers


@lru_cache(maxsize=4)
def pass_group_order(shape: Pipeline) -> PassGroupOrder:
    """Order of a pipeline; megabytes for many passes, so few are cached."""
    schedule, stages, chunks, microbatches = shape
    order = pass_order(schedule, stages, chunks, microbatches)
    distinct = [
        (stage, group)
        for stage in range(stages)
        for group in stage_passes(schedule, stage, stages, chunks, microbatches).concurrent_groups
    ]
    no_message = 2 * stages * chunks

    def position(stage: int, kind: PassKind) -> int:
        return chunk_position(schedule, stage, kind.chunk, stages)

    def message(stage: int, kind: PassKind) -> int:
        into = position(stage, kind)
        first = into == 0 if kind.forward else into == stages * chunks - 1
        if first or kind.part == "weight":
            return no_message
        return into if kind.forward else stages * chunks + into

    def messages(stage: int, group: ConcurrentPasses) -> list[int]:
        numbers = [message(stage, kind) for kind in group]
        return numbers + [no_message] * (len(order.sources) - len(numbers))

    return PassGroupOrder(
        positions=stages * chunks,
        stage_positions=[
            [chunk_position(schedule, stage, chunk, stages) for chunk in range(chunks)]
            for stage in range(stages)
        ],
        order=order,
        before=order.before.tolist(),
        sources=order.sources.tolist(),
        last=[int(groups[-1]) for groups in order.places],
        distinct=[
            tuple((position(stage, kind), kind_number(kind)) for kind in group)
            for stage, group in distinct
        ],
        messages=np.array([messages(stage, group) for stage, group in distinct], dtype=np.int32).T,
    )
