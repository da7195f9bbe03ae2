"""Flags that accompany a Galvatron profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...costmodel.memory.feasibility import MemoryRule
from ...spec.choices import GALVATRON_COSTS
from ...spec.errors import InputError, one_of
from ...spec.report.report import Assumption

GALVATRON_RULE = MemoryRule(0.5)
"""Galvatron's memory fits where its figure does, for it withholds the rest itself."""
OUR_COSTS_NOTE = Assumption(
    path="costs",
    value=GALVATRON_COSTS[1],
    why="--costs: nothing of the Galvatron profile enters the prices of this plan",
)
IGNORED_FLAGS = ("execute", "pins", "oom_risk", "calibration", "stack")


def uses_galvatron_costs(flags: Mapping[str, Any]) -> bool:
    """Return True if the plan is to be searched under Galvatron's costs.

    Args:
        flags: values of the flags by name.

    Raises:
        InputError: ``--costs`` without a profile or of neither, or a flag that its costs ignore.
    """
    folder, costs = flags["galvatron_profile"], flags["costs"]
    if folder is None:
        if costs is not None:
            near = f"--galvatron-profile DIR --costs {costs}"
            raise InputError("--costs", f"{costs} without a profile", "a profile beside it", near)
        return False
    if not Path(folder).expanduser().is_dir():
        allowed = "a folder that Galvatron's profilers wrote"
        raise InputError("--galvatron-profile", folder, allowed)
    typed = GALVATRON_COSTS[0] if costs is None else costs
    if one_of("--costs", typed, GALVATRON_COSTS) == GALVATRON_COSTS[1]:
        return False
    for name in IGNORED_FLAGS:
        if flags.get(name):
            flag = "--pin" if name == "pins" else "--" + name.replace("_", "-")
            allowed = "no such flag under Galvatron's costs, which do not know it"
            raise InputError(flag, "it beside --galvatron-profile", allowed, "--costs ours")
    return True
