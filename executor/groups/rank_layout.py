"""Which ranks a plan runs on; nothing here needs torch."""

from __future__ import annotations

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.rules.layer_rules import CORE

CPU_DEVICE = CORE
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


def plan_devices(plan: Plan) -> tuple[str, ...]:
    """The catalogue names of the devices that a plan's stages run on, by rank."""
    return tuple(
        plan.cluster.group(part.device_group).device
        for stage in plan.program.stages
        for part in stage.devices
        for _ in range(part.count)
    )


def plan_device(plan: Plan) -> str:
    """The catalogue name of the one kind of device that the plan's stages run on.

    Raises:
        InputError: stages on different kinds of device.
    """
    names = sorted(set(plan_devices(plan)))
    if len(names) != 1:
        allowed = "one kind of device on this machine; torchrun starts the ranks of mixed machines"
        raise InputError("plan.stages", ", ".join(names), allowed)
    return names[0]


def runs_on_cores(plan: Plan) -> bool:
    """Whether a plan's ranks are cores of a machine, not accelerators."""
    return CPU_DEVICE in plan_devices(plan)
