"""This machine's ability to run plans, found without importing torch."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...datasets.catalogue.device import CPU
from ...datasets.catalogue.local import core_count, memory_bytes
from ...executor.groups.rank_layout import plan_device, plan_world_size
from ...executor.launch.unsupported import find_unsupported
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.errors import InputError
from ...spec.plan.plan import Plan

CUDA_DEVICE = re.compile(r"nvidia\d+")
RANK_BYTES = 2**28
"""Memory of an idle rank: an interpreter with torch loaded (its anonymous memory on Linux, torch
2.13, rounded up)."""


def cuda_count(root: Path = Path("/")) -> int:
    """CUDA devices that a process here may use.

    Args:
        root: where ``dev`` is mounted (for tests).
    """
    try:
        count = sum(bool(CUDA_DEVICE.fullmatch(path.name)) for path in (root / "dev").iterdir())
    except OSError:
        count = 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return count
    listed = [part for part in visible.split(",") if part.strip() not in ("", "-1")]
    return min(count, len(listed))


def require_devices(cluster: ClusterSpec, where: str) -> None:
    """Refuse a cluster that is not this machine.

    A CPU cluster may have more devices than there are cores; its report says so.

    Raises:
        InputError: devices that this machine lacks.
    """
    if len(cluster.groups) > 1:
        description = f"{len(cluster.groups)} device groups"
        raise InputError(where, description, "one: this machine", "local, or plan simulate")
    group = cluster.groups[0]
    if group.device == CPU:
        require_room(group.device_count, where)
        return
    here = cuda_count()
    if group.device_count > here:
        description = f"{group.device_count} x {group.device}"
        allowed = f"this machine has {core_count()} CPU cores, {here} CUDA devices"
        raise InputError(where, description, allowed, "local, or plan simulate")


def require_room(ranks: int, where: str) -> None:
    """Refuse more processes than this machine's memory holds.

    Raises:
        InputError: too many ranks.
    """
    most = memory_bytes() // RANK_BYTES
    if ranks > most:
        description, allowed = (
            f"{ranks} processes",
            f"at most {most}, which this machine's memory holds",
        )
        raise InputError(where, description, allowed, "local")


def require_executable(plan: Plan, where: str) -> None:
    """Refuse a plan that the bundled executor cannot run on this machine.

    Raises:
        InputError: missing devices, or an unsupported model or strategy.
    """
    require_built(plan, where)
    ranks = plan_world_size(plan)
    if plan_device(plan) == CPU:
        require_room(ranks, f"{where}: cluster")
    elif ranks > cuda_count() or len(plan.cluster.groups) > 1:
        require_devices(plan.cluster, f"{where}: cluster")


def require_built(plan: Plan, where: str) -> None:
    """Refuse a plan that the bundled executor runs on no machine.

    Raises:
        InputError: an unsupported model, schedule or strategy.
    """
    if unsupported := find_unsupported(plan):
        raise InputError(where, unsupported.reason, unsupported.allowed, unsupported.nearest)
