"""The cluster ``local``: this machine's cores, one device each.

``local`` takes one device for each core that the process may use, with one thread and its share of
the memory; ``local:N`` takes N, and says so where there are fewer cores. Numbers are fp32, and
ranks communicate over gloo.
"""

from __future__ import annotations

import re

from ...spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, LinkLevel, MemoryTiers
from ...spec.errors import InputError
from ...spec.limits import MAX_DEVICES_PER_NODE
from ...spec.report.report import Assumption
from ..catalogue.device import CPU
from ..catalogue.local import core_count, memory_bytes
from .parsed_cluster import GROUP, ParsedCluster

LOCAL = "local"


def local_cluster(text: str, where: str) -> ParsedCluster:
    """The cluster of ``local`` or ``local:N``.

    Raises:
        InputError: N is no count, or a network was given.
    """
    match = re.fullmatch(r"local(?::([0-9]{1,9}))?", text, re.ASCII | re.IGNORECASE)
    cores = core_count()
    if match is None:
        allowed = "local, or local:N with N devices on this machine (no network)"
        raise InputError(where, text, allowed, f"local:{cores}")
    count = cores if match[1] is None else int(match[1])
    if not 1 <= count <= MAX_DEVICES_PER_NODE:
        allowed = f"local:N with N from 1 to {MAX_DEVICES_PER_NODE}"
        raise InputError(where, text, allowed, f"local:{cores}")
    total = memory_bytes()
    group = DeviceGroup(
        name=GROUP,
        device=CPU,
        node=LOCAL,
        nodes=1,
        devices_per_node=count,
        memory=MemoryTiers(hbm_bytes=max(1, total // count)),
    )
    level = LinkLevel(level="intra_node", group_size=count, fabric="loopback")
    return ParsedCluster(
        cluster=ClusterSpec(groups=(group,), levels=(level,)),
        assumptions=tuple(_assumptions(count, cores, group.memory.hbm_bytes)),
        expansion=f"{LOCAL}:{count}",
    )


def _assumptions(count: int, cores: int, share_bytes: int) -> list[Assumption]:
    notes = [
        Assumption(
            path="cluster.levels.0.fabric",
            value="loopback",
            why="no fabric given; processes of one machine, gloo over its loopback device",
        )
    ]
    if count > cores:
        why = f"oversubscribed: {count} devices on {cores} cores; each runs slower than priced"
        notes.append(Assumption(path="cluster.groups.0.devices_per_node", value=count, why=why))
    why = f"this machine's memory (or its control group's limit) divided by {count} devices"
    notes.append(Assumption(path="cluster.groups.0.memory.hbm_bytes", value=share_bytes, why=why))
    return notes
