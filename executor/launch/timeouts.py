"""Timeouts of ranks: longer where a driver or a compiler may hold one still.

On an accelerator a rank's first step may compile kernels, and a driver that loads code may hold a
process still for seconds. Where layers are compiled, each stage does it in the first step, when
its turn comes, and the others wait for it.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.plan.plan import Plan
from ...spec.technique_values import slow_start
from ..groups.rank_layout import CPU_DEVICE, runs_on_cores


class Timeouts(NamedTuple):
    """Seconds until a rank counts as missing.

    ``collective_s``: in a collective, for the others. ``silent_s``: without a heartbeat of a rank
    at work. ``stalled_s``: in which all ranks neither work nor progress; on cores a rank that
    waits does not work, on a device nobody can tell. ``join_s``: without a sign of life of a rank
    that has yet to join the others; loading its libraries is one.
    """

    collective_s: float
    silent_s: float
    stalled_s: float
    join_s: float


CPU_TIMEOUTS = Timeouts(60.0, 5.0, 10.0, 8.0)
GPU_TIMEOUTS = Timeouts(300.0, 30.0, 310.0, 30.0)
COMPILE_TIMEOUTS = Timeouts(600.0, 60.0, 610.0, 30.0)


def device_timeouts(device: str) -> Timeouts:
    """Default timeouts of ranks on a device with this catalogue name."""
    return CPU_TIMEOUTS if device == CPU_DEVICE else GPU_TIMEOUTS


def plan_timeouts(plan: Plan) -> Timeouts:
    """Timeouts of a plan's ranks."""
    if slow_start(plan.layer_strategies()):
        return COMPILE_TIMEOUTS
    return CPU_TIMEOUTS if runs_on_cores(plan) else GPU_TIMEOUTS
