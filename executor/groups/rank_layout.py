"""Ranks and devices of a plan; needs no torch."""

from __future__ import annotations

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.rules.layer_rules import CORE

CPU_DEVICE = CORE
"""Catalogue name of one core of this machine."""


def plan_world_size(plan: Plan) -> int:
    """Ranks of a plan; idle devices have none."""
    return sum(stage.device_count for stage in plan.program.stages)


def stage_layout(plan: Plan) -> list[tuple[int, int]]:
    """First rank and rank count of each stage, in stage order."""
    ranges, first = [], 0
    for stage in plan.program.stages:
        ranges.append((first, stage.device_count))
        first += stage.device_count
    return ranges


def plan_devices(plan: Plan) -> tuple[str, ...]:
    """Catalog names of the stages' devices, by rank."""
    return tuple(
        plan.cluster.group(part.device_group).device
        for stage in plan.program.stages
        for part in stage.devices
        for _ in range(part.count)
    )


def plan_device(plan: Plan) -> str:
    """Catalog name of the only device type under a plan's stages.

    Raises:
        InputError: stages on different device types.
    """
    names = sorted(set(plan_devices(plan)))
    if len(names) != 1:
        allowed = "one kind of device on this machine; torchrun starts the ranks of mixed machines"
        raise InputError("plan.stages", ", ".join(names), allowed)
    return names[0]


def runs_on_cores(plan: Plan) -> bool:
    """True if a plan's ranks are CPU cores, not accelerators."""
    return CPU_DEVICE in plan_devices(plan)
