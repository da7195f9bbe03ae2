"""Legal neighbors of plans over several device groups: devices, orders and shares change too.

Some of them are in no search, for all stages of a group have one width there, and all or none of
the stages share the groups; see :func:`is_searched`.
"""

from __future__ import annotations

from itertools import groupby

from generators.random_heterogeneous_plans import MixedDraft
from neighbors.heterogeneous_moves import (
    change_shares,
    join_or_part,
    keeping_levels,
    order_devices,
    other_depth,
    other_group,
    other_mixed_microbatches,
    other_mixed_schedule,
    other_width,
    used_devices,
)
from neighbors.plan_moves import change_strategy, move_cut
from neighbors.plan_neighbors import Sort, is_cut, pipeline_of, suits
from oracles.brute_force import Space
from oracles.heterogeneous_oracle import Held, suits_shared

from shardwright.planner.candidates.evaluator import Decision
from shardwright.spec.plan.plan import Stage, StageDevices


def mixed_draft_of(decision: Decision) -> MixedDraft:
    """A planner's decision as the oracle's kind of plan over several device groups."""
    held = tuple(
        tuple(
            StageDevices(
                device_group=part.group,
                first_rank=part.first,
                count=part.devices,
                batch_share=part.samples / sum(p.samples for p in place) if place[1:] else None,
            )
            for part in place
        )
        for place in decision.shape.places
    )
    return MixedDraft(
        pipeline=pipeline_of(decision),
        held=held,
        boundaries=decision.boundaries,
        strategies=decision.strategies,
    )


def is_mixed_legal(space: Space, draft: MixedDraft) -> bool:
    """Whether a plan over several device groups is legal, in the oracle's space or beside it."""
    used = used_devices(draft.held)
    if len(used) < 2 or any(used[g.name] > g.device_count for g in space.cluster.groups):
        return False
    if not is_cut(space, draft):
        return False
    samples = space.workload.global_batch // draft.pipeline.microbatches
    layers, stages = space.model.layers(), draft.stages()
    for number, (layer, strategy) in enumerate(zip(layers, draft.strategies, strict=True)):
        parts = draft.held[stages[number]]
        if len(parts) == 1:
            if not suits(space, parts[0].count, samples, number, strategy):
                return False
            continue
        stage = Stage(devices=parts, virtual_stages=())
        if not suits_shared(space, stage, samples, number, layer, strategy):
            return False
    if samples % draft.strategies[0].data_parallel(draft.widths()[0]):
        return False
    return not draft.plan(space).check()


def is_searched(space: Space, draft: MixedDraft) -> bool:
    """Whether a plan is of the two families that :mod:`oracles.heterogeneous_oracle` speaks of.

    In which order the groups stand inside all stages is the same to every plan.
    """
    if any(len(stage) > 1 for stage in draft.held):
        each = {tuple((p.device_group, p.count, p.batch_share) for p in s) for s in draft.held}
        return len(each) == 1
    runs = [set(run) for _, run in groupby(map(_block, draft.held), key=lambda held: held[0])]
    return len(runs) == len(used_devices(draft.held)) and all(len(widths) == 1 for widths in runs)


def _block(held: Held) -> tuple[str, int]:
    """Group and width of a stage that holds one group."""
    return held[0].device_group, held[0].count


MIXED_STAGES: Sort[MixedDraft] = Sort(
    moves={
        "strategy": change_strategy,
        "boundary": keeping_levels(move_cut),
        "micro-batches": other_mixed_microbatches,
        "schedule": keeping_levels(other_mixed_schedule),
        "width": keeping_levels(other_width),
        "depth": keeping_levels(other_depth),
        "group": keeping_levels(other_group),
        "order": keeping_levels(order_devices),
        "together": keeping_levels(join_or_part),
        "shares": change_shares,
    },
    is_legal=is_mixed_legal,
)
