"""Stages of a shared table: tied embeddings and head."""

from __future__ import annotations

from ...spec.model.towers import shared_tables
from ...spec.parallel.rank_groups import RankGroup
from ...spec.plan.plan import Plan


def table_stages(plan: Plan) -> tuple[int, ...]:
    """Stages with a copy of the shared table, in order, or none."""
    layers = shared_tables(plan.model)
    if not layers:
        return ()
    offsets, offset = {}, 0
    for tower in plan.model.towers:
        offsets[tower.name] = offset
        offset += tower.layer_count
    return tuple(
        number
        for number, stage in enumerate(plan.program.stages)
        if any(
            first <= index - offsets[tower] <= last
            for parts in stage.virtual_stages
            for tower, first, last in (part.layers for part in parts)
            for index in layers
        )
    )


def table_group(plan: Plan, stages: tuple[int, ...]) -> RankGroup:
    """Ranks of the table's gradient sum; uneven distances as their mean."""
    apart = (stages[-1] - stages[0]) // (len(stages) - 1)
    between = plan.program.stages[stages[0] : stages[0] + apart]
    return RankGroup(len(stages), sum(stage.device_count for stage in between))
