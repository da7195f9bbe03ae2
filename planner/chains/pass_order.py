"""The order of a pipeline's passes, with the position and the message of each, by numbers.

It depends on the schedule alone, so it is kept for pipelines that are played often.
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
    """Groups of passes that start together, counted from 1.

    ``order``: of the groups. ``before`` and ``sources`` are those of the order as lists. ``last``:
    of each stage, its last group. ``places``: of each kind of group, its passes. ``messages``: the
    number of the message that each of its passes waits for, shape (passes of a group, kinds): into
    a position, for backward passes as many further on as there are positions, and after those none.
    """

    positions: int
    order: PassOrder
    before: list[int]
    sources: list[list[int]]
    last: list[int]
    places: list[PassGroup]
    messages: GroupNumbers


@lru_cache(maxsize=4)
def pass_group_order(shape: Pipeline) -> PassGroupOrder:
    """The order of a pipeline; some megabytes for those of many passes, so few are kept.

    Args:
        shape: schedule, stages, chunks a stage, micro-batches.
    """
    schedule, stages, chunks, microbatches = shape
    order = pass_order(schedule, stages, chunks, microbatches)
    distinct = [
        (stage, concurrent_groups)
        for stage in range(stages)
        for concurrent_groups in stage_passes(
            schedule, stage, stages, chunks, microbatches
        ).concurrent_groups
    ]
    nowhere = 2 * stages * chunks

    def position(stage: int, kind: PassKind) -> int:
        return chunk_position(schedule, stage, kind.chunk, stages)

    def way(stage: int, kind: PassKind) -> int:
        """The message that a pass waits for."""
        own = position(stage, kind)
        first = own == 0 if kind.forward else own == stages * chunks - 1
        if first or kind.part == "weight":
            return nowhere
        return own if kind.forward else stages * chunks + own

    def messages(stage: int, concurrent_groups: ConcurrentPasses) -> list[int]:
        own = [way(stage, kind) for kind in concurrent_groups]
        return own + [nowhere] * (len(order.sources) - len(own))

    return PassGroupOrder(
        positions=stages * chunks,
        order=order,
        before=order.before.tolist(),
        sources=order.sources.tolist(),
        last=[int(places[-1]) for places in order.places],
        places=[
            tuple((position(stage, kind), kind_number(kind)) for kind in concurrent_groups)
            for stage, concurrent_groups in distinct
        ],
        messages=np.array(
            [messages(stage, concurrent_groups) for stage, concurrent_groups in distinct],
            dtype=np.int32,
        ).T,
    )
