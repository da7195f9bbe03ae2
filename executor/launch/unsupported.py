"""Unsupported parts of a plan, for launchers and ranks; loads no torch."""

from __future__ import annotations

from typing import NamedTuple

from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import unsupported_shared_bias
from ...spec.plan.technique_groups import unsupported_plan_technique
from ...spec.rules.executable import (
    RUN_MODELS,
    unsupported_combination,
    unsupported_model,
    unsupported_together,
)
from ...spec.rules.plan_rules import unsupported_devices, unsupported_run
from ...spec.technique import Values
from ...spec.techniques import TECHNIQUES
from ..groups.rank_layout import plan_devices


class Unsupported(NamedTuple):
    """An unsupported part of a plan, the allowed one, the nearest command."""

    reason: str
    allowed: str
    nearest: str


def find_unsupported(plan: Plan, techniques: Values = TECHNIQUES) -> Unsupported | None:
    """Obstacle to running a plan as written; None if none."""
    if reason := unsupported_model(plan.model, plan.workload.seq_len):
        return Unsupported(reason, f"a plan of {RUN_MODELS}", "plan simulate")
    if reason := unsupported_devices(plan_devices(plan)):
        return Unsupported(reason, "cores alone, or accelerators alone", "plan simulate")
    for strategy in dict.fromkeys(plan.layer_strategies()):
        if reason := unsupported_run(strategy, plan.workload, techniques):
            return Unsupported(reason, "a plan that the executor runs", "plan --execute")
    if (
        reason := unsupported_together(plan)
        or unsupported_combination(plan)
        or unsupported_shared_bias(plan)
    ):
        return Unsupported(reason, "a plan that the executor runs", "plan --execute")
    if reason := unsupported_plan_technique(plan, techniques):
        return Unsupported(reason, "techniques that the executor runs", "plan simulate")
    return None
