"""Timeouts of ranks, longer under a driver or a compiler.

On an accelerator the first step may compile kernels, and a driver that loads code may stall a
process for seconds. Compiled layers are compiled stage by stage in the first step while the other
stages wait.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.plan.plan import Plan
from ...spec.technique_values import slow_start
from ..groups.rank_layout import CPU_DEVICE, runs_on_cores


class Timeouts(NamedTuple):
    """Seconds until a rank counts as missing.

    ``collective_s``: in a collective. ``silent_s``: a working rank without a heartbeat.
    ``stalled_s``: all ranks without work or progress; on cores a waiting rank does no work, on a
    device nobody can tell. ``join_s``: a joining rank without a sign of life, such as loading
    libraries.
    """

    collective_s: float
    silent_s: float
    stalled_s: float
    join_s: float


CPU_TIMEOUTS = Timeouts(60.0, 5.0, 10.0, 8.0)
GPU_TIMEOUTS = Timeouts(300.0, 30.0, 310.0, 30.0)
COMPILE_TIMEOUTS = Timeouts(600.0, 60.0, 610.0, 30.0)


def device_timeouts(device: str) -> Timeouts:
    """Default timeouts for a device of the catalog."""
    return CPU_TIMEOUTS if device == CPU_DEVICE else GPU_TIMEOUTS


def plan_timeouts(plan: Plan) -> Timeouts:
    """Timeouts of a plan's ranks."""
    if slow_start(plan.layer_strategies()):
        return COMPILE_TIMEOUTS
    return CPU_TIMEOUTS if runs_on_cores(plan) else GPU_TIMEOUTS
