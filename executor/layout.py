"""Which ranks a plan runs on; nothing here needs torch."""

from __future__ import annotations

from ..spec.errors import InputError
from ..spec.plan import Plan

CPU_DEVICE = "cpu"
"""The catalogue's name of one core of this machine."""


def plan_world_size(plan: Plan) -> int:
    """Ranks that a plan runs on; idle devices have none."""
    return sum(stage.device_count for stage in plan.program.stages)


def stage_layout(plan: Plan) -> list[tuple[int, int]]:
    """First rank and number of ranks of each stage; ranks follow the stages' order."""
    found, first = [], 0
    for stage in plan.program.stages:
        found.append((first, stage.device_count))
        first += stage.device_count
    return found


def plan_device(plan: Plan) -> str:
    """The catalogue name of the one kind of device that the plan's stages run on.

    Raises:
        InputError: stages on different kinds of device.
    """
    names = {
        plan.cluster.group(part.device_group).device
        for stage in plan.program.stages
        for part in stage.devices
    }
    if len(names) != 1:
        allowed = "stages on one kind of device (mixed runs are not built yet)"
        raise InputError("plan.stages", ", ".join(sorted(names)), allowed)
    return names.pop()
