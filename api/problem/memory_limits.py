"""``--memory-gib``, ``--host-gib`` and ``--nvme-gib`` applied to a cluster."""

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
    cluster: ClusterSpec,
    memory_gib: float | None,
    host_gib: float | None,
    nvme_gib: float | None = None,
) -> ClusterSpec:
    """Cluster with capped device memory, and granted memory of hosts and room on drives.

    All are GiB per device. The cap includes the device's context; None: all device memory, the
    cluster's host memory and drives. What drives hold is not in the catalogue, so that any room on
    them is believed.

    Raises:
        InputError: an invalid amount, or more than the hosts have.
    """
    sizes = {"--memory-gib": memory_gib, "--host-gib": host_gib, "--nvme-gib": nvme_gib}
    if all(value is None for value in sizes.values()):
        return cluster
    for flag, value in sizes.items():
        if value is not None and not 0 < value < MAX_GIB:
            raise InputError(flag, value, GIB_PER_DEVICE)
    groups = (_limited_group(g, memory_gib, host_gib, nvme_gib) for g in cluster.groups)
    return replace(cluster, groups=tuple(groups))


def _limited_group(
    group: DeviceGroup, memory_gib: float | None, host_gib: float | None, nvme_gib: float | None
) -> DeviceGroup:
    memory = group.memory
    if memory_gib is not None:
        memory = replace(memory, hbm_bytes=min(memory.hbm_bytes, int(memory_gib * GIB)))
    if host_gib is not None:
        memory = replace(memory, host_bytes=_host_bytes(group, host_gib))
    if nvme_gib is not None:
        memory = replace(memory, nvme_bytes=int(nvme_gib * GIB))
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
