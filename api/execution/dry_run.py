"""Ranks, groups and a step of a run, without starting it."""

from __future__ import annotations

import shlex
from typing import Any

from ...executor.groups.rank_layout import plan_devices, plan_world_size, stage_layout
from ...spec.parallel.rank_groups import (
    RankGroup,
    ReducedRanks,
    replica_group,
    shard_group,
    tensor_group,
)
from ...spec.plan.plan import Plan, Stage
from ...spec.plan.technique_groups import plan_reduced_ranks
from ...spec.strategy import LayerStrategy
from .addresses import address_document
from .dry_run_process import dry_run_stages


def dry_run(plan: Plan, steps: int, path: str = "PLAN.json") -> dict[str, Any]:
    """Describe ranks, groups and stages of a run of a plan.

    ``rehearsal`` is what a rank of each kind of stage would send and hold, with the library's
    kernels; None without torch. ``addresses``: of their requests, where the plan has them planned.
    ``path`` is the plan's file, for the command that starts the ranks by hand.
    """
    layout = stage_layout(plan)
    file = shlex.quote(path)
    addresses = address_document(plan)
    return {
        "plan_hash": plan.hash,
        "device": ", ".join(dict.fromkeys(plan_devices(plan))),
        "ranks": plan_world_size(plan),
        "steps": steps,
        "stages": [_stage(plan, number, first) for number, (first, _) in enumerate(layout)],
        "rehearsal": dry_run_stages(plan),
        **({} if addresses is None else {"addresses": addresses}),
        "command": f"torchrun --nproc-per-node {plan_world_size(plan)} "
        f"-m shardwright.executor.worker {file} --steps {steps}",
    }


def _stage(plan: Plan, number: int, first: int) -> dict[str, Any]:
    stage = plan.program.stages[number]
    numbers = [n for parts in stage.virtual_stages for n, _, _ in plan.chunk_layers(parts)]
    strategies = [s for parts in stage.virtual_stages for _, _, s in plan.chunk_layers(parts)]
    return {
        "stage": number,
        "ranks": [first, first + stage.device_count - 1],
        "layers": sorted(numbers),
        "groups": _groups(stage, strategies, first, plan_reduced_ranks(plan, number)),
    }


def _groups(
    stage: Stage, strategies: list[LayerStrategy], first: int, reduced: ReducedRanks | None
) -> list[dict[str, Any]]:
    """List distinct groups of several ranks: purpose and members."""
    groups: dict[tuple[str, RankGroup], None] = {}
    for strategy in strategies:
        summing = stage.device_count if reduced is None else reduced(strategy)
        for use, group in (
            ("tensor parallel", tensor_group(strategy)),
            ("shard", shard_group(strategy)),
            ("replicas", replica_group(strategy, summing)),
        ):
            if group.size > 1:
                groups[use, group] = None
    return [
        {
            "use": use,
            "size": group.size,
            "members": sorted(
                {
                    tuple(first + rank for rank in group.members(local))
                    for local in range(stage.device_count)
                }
            ),
        }
        for use, group in groups
    ]
