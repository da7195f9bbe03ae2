"""Techniques of a whole plan: in use, rank groups, unsupported ones.

Apart from ``spec.techniques``, since plans hold strategies, which need that.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..parallel.rank_groups import RankGroup, ReducedRanks
from ..program_values import (
    lossy_program_values,
    program_groups,
    reduced_ranks,
    unsupported_program,
)
from ..strategy import LayerStrategy
from ..technique import Values
from ..technique_values import (
    lossy_values,
    technique_groups,
    unsupported_split_backward,
    unsupported_technique,
)
from ..techniques import TECHNIQUES
from .plan import Plan, Stage


def stage_strategies(stage: Stage) -> Iterator[LayerStrategy]:
    """The strategies of a stage's layers, overrides of single device groups included."""
    for parts in stage.virtual_stages:
        for part in parts:
            yield part.strategy
            yield from part.by_device_group.values()


def used_techniques(plan: Plan) -> set[str]:
    """Names of the techniques that a plan's program or any of its layers uses."""
    return {
        name
        for stage in plan.program.stages
        for strategy in stage_strategies(stage)
        for name in strategy.techniques
    } | {*plan.program.techniques}


def plan_lossy_values(plan: Plan, techniques: Values = TECHNIQUES) -> dict[str, str]:
    """``NAME=WORD`` of the lossy values of a plan -> their bounds as text, sorted."""
    strategies = (s for stage in plan.program.stages for s in stage_strategies(stage))
    bounds = lossy_values(strategies, techniques)
    bounds |= lossy_program_values(plan.program.techniques, techniques)
    return dict(sorted(bounds.items()))


def stage_technique_groups(
    plan: Plan, stage: int, techniques: Values = TECHNIQUES
) -> list[tuple[str, RankGroup]]:
    """Techniques' own groups of several ranks on a stage, sorted."""
    stage_plan, values = plan.program.stages[stage], plan.program.techniques
    ranks = stage_plan.device_count
    strategies = {id(s): s for s in stage_strategies(stage_plan) if s.techniques or values}
    return sorted(
        {
            (name, group)
            for strategy in strategies.values()
            for owners in (
                technique_groups(strategy, ranks, techniques),
                program_groups(values, strategy, ranks, techniques),
            )
            for name, groups in owners.items()
            for group in groups
        }
    )


def plan_reduced_ranks(
    plan: Plan, stage: int, techniques: Values = TECHNIQUES
) -> ReducedRanks | None:
    """Ranks of a stage that sum gradients, by strategy; None: all of them."""
    values, ranks = plan.program.techniques, plan.program.stages[stage].device_count
    if not values:
        return None
    return lambda strategy: reduced_ranks(values, strategy, ranks, techniques)


def unsupported_plan_technique(plan: Plan, techniques: Values = TECHNIQUES) -> str | None:
    """Reason why the executor does not run a plan's techniques, or None."""
    if not used_techniques(plan):
        return None
    if reason := unsupported_program(plan.program.techniques, techniques):
        return reason
    for _, _, parts in plan.program.chunks():
        groups = {group: None for part in parts for group in (None, *part.by_device_group)}
        for group in groups:
            for _, layer, strategy in plan.chunk_layers(parts, group):
                reason = unsupported_technique(layer, strategy, techniques)
                if reason is None and plan.program.splits_backward:
                    reason = unsupported_split_backward(strategy, techniques)
                if reason:
                    return reason
    return None
