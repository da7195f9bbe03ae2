"""How long ranks wait for each other: longer where a driver or a compiler may hold one still.

On an accelerator a rank's first step may compile kernels, and a driver that loads code may hold a
process still for seconds. Where layers are compiled, each stage does it in the first step, when
its turn comes, and the others wait for it.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.plan.plan import Plan
from ...spec.techniques import slow_start
from ..groups.rank_layout import CPU_DEVICE, runs_on_cores


class Patience(NamedTuple):
    """How many seconds pass until somebody is missing.

    ``collective_s``: in a collective, for the others. ``silent_s``: without a heartbeat of a rank
    at work. ``stalled_s``: in which all ranks neither work nor get on; on cores a rank that waits
    does not work, on a device nobody can tell. ``join_s``: without a sign of life of a rank that
    has yet to join the others; loading its libraries is one.
    """

    collective_s: float
    silent_s: float
    stalled_s: float
    join_s: float


ON_CORES = Patience(60.0, 5.0, 10.0, 8.0)
ON_DEVICES = Patience(300.0, 30.0, 310.0, 30.0)
COMPILING = Patience(600.0, 60.0, 610.0, 30.0)


def patience_on(device: str) -> Patience:
    """The usual limits of ranks on a device with this catalogue name."""
    return ON_CORES if device == CPU_DEVICE else ON_DEVICES


def patience_for(plan: Plan) -> Patience:
    """The limits of a plan's ranks."""
    if slow_start(plan.layer_strategies()):
        return COMPILING
    return ON_CORES if runs_on_cores(plan) else ON_DEVICES
