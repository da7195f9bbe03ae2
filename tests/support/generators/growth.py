"""Questions with more memory, host memory, devices or bandwidth."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from oracles.brute_force import Space
from oracles.heterogeneous_oracle import with_one_more

from shardwright.spec.cluster.cluster_spec import ClusterSpec, DeviceGroup


def _with_more_memory(space: Space, source: random.Random) -> Space:
    """Larger capacities, of several groups perhaps only of one."""
    groups = space.cluster.groups
    chosen = source.choice([*groups, None]) if len(groups) > 1 else None

    def more(group: DeviceGroup) -> DeviceGroup:
        capacity_bytes = int(group.memory.hbm_bytes * (1 + 10 ** source.uniform(-3, 0.5))) + 1
        grows = chosen is None or group == chosen
        return (
            replace(group, memory=replace(group.memory, hbm_bytes=capacity_bytes))
            if grows
            else group
        )

    cluster = replace(space.cluster, groups=tuple(map(more, groups)))
    return replace(space, cluster=cluster)


def _with_more_devices(space: Space, source: random.Random) -> Space:
    grow: Callable[[ClusterSpec, random.Random], ClusterSpec] = grown
    if len(space.cluster.groups) > 1:
        grow = _grown_group
    return replace(space, cluster=grow(space.cluster, source))


def _with_more_host_memory(space: Space, source: random.Random) -> Space:
    """Memory of the hosts, at first a quarter to twice a device's."""
    hbm_bytes = space.cluster.groups[0].memory.hbm_bytes
    added_bytes = int(hbm_bytes * source.uniform(0.25, 2.0))

    def more(group: DeviceGroup) -> DeviceGroup:
        host_bytes = (group.memory.host_bytes or 0) + added_bytes
        return replace(group, memory=replace(group.memory, host_bytes=host_bytes))

    groups = tuple(map(more, space.cluster.groups))
    return replace(space, cluster=replace(space.cluster, groups=groups))


def _with_more_bandwidth(space: Space, source: random.Random) -> Space:
    """One link level, faster by up to a factor of ten."""
    cluster = space.cluster
    chosen, factor = source.randrange(len(cluster.levels)), 10 ** source.uniform(0.01, 1.0)
    levels = list(cluster.levels)
    level = levels[chosen]
    if level.bandwidth_bytes_per_s is not None:
        bandwidth = level.bandwidth_bytes_per_s * factor
        levels[chosen] = replace(level, bandwidth_bytes_per_s=bandwidth)
    return replace(space, cluster=replace(cluster, levels=tuple(levels)))


def grown(cluster: ClusterSpec, source: random.Random) -> ClusterSpec:
    """The cluster with one or two devices, or a node, more."""
    group, inner = cluster.groups[0], cluster.levels[0]
    if len(cluster.levels) > 1:
        larger = replace(group, nodes=group.nodes + 1)
        outer = replace(cluster.levels[-1], group_size=larger.device_count)
        return replace(cluster, groups=(larger,), levels=(*cluster.levels[:-1], outer))
    count = group.devices_per_node + source.randint(1, 2)
    larger = replace(group, devices_per_node=count)
    return replace(cluster, groups=(larger,), levels=(replace(inner, group_size=count),))


def _grown_group(cluster: ClusterSpec, source: random.Random) -> ClusterSpec:
    return with_one_more(cluster, source.randrange(len(cluster.groups)))


GROWTH: dict[str, Callable[[Space, random.Random], Space]] = {
    "memory": _with_more_memory,
    "devices": _with_more_devices,
    "host": _with_more_host_memory,
    "bandwidth": _with_more_bandwidth,
}
