"""``--memory-gib`` and ``--host-gib`` applied to a cluster."""

from __future__ import annotations

from dataclasses import replace

from ...datasets.catalogue.device import CPU
from ...datasets.catalogue.node import node
from ...spec.cluster.cluster_spec import ClusterSpec, DeviceGroup
from ...spec.errors import InputError
from ...spec.units import GIB

MAX_GIB = 2**30
GIB_PER_DEVICE = "a positive number of GiB a device"


def limit_memory(
    cluster: ClusterSpec, memory_gib: float | None, host_gib: float | None
) -> ClusterSpec:
    """Cluster with capped device memory and granted host memory.

    Both are GiB per device. The cap includes the device's context; None: all device memory, the
    cluster's host memory.

    Raises:
        InputError: an invalid amount, or more than the hosts have.
    """
    if memory_gib is None and host_gib is None:
        return cluster
    for flag, value in (("--memory-gib", memory_gib), ("--host-gib", host_gib)):
        if value is not None and not 0 < value < MAX_GIB:
            raise InputError(flag, value, GIB_PER_DEVICE)
    return replace(
        cluster, groups=tuple(_limited_group(g, memory_gib, host_gib) for g in cluster.groups)
    )


def _limited_group(
    group: DeviceGroup, memory_gib: float | None, host_gib: float | None
) -> DeviceGroup:
    memory = group.memory
    if memory_gib is not None:
        memory = replace(memory, hbm_bytes=min(memory.hbm_bytes, int(memory_gib * GIB)))
    if host_gib is not None:
        memory = replace(memory, host_bytes=_host_bytes(group, host_gib))
    return replace(group, memory=memory)


def _host_bytes(group: DeviceGroup, host_gib: float) -> int:
    host_bytes = int(host_gib * GIB)
    if group.device == CPU:
        return host_bytes
    has = node(group.node).host_memory_bytes // group.devices_per_node
    if host_bytes > has:
        most = f"{has / GIB:.4g}"
        allowed = f"at most {most}: a {group.node} has {has * group.devices_per_node / GIB:.4g} GiB"
        raise InputError("--host-gib", host_gib, f"{allowed} for {group.devices_per_node}", most)
    return host_bytes
