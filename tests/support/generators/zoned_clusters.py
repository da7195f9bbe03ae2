"""Clusters whose device groups lie in zones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from oracles.heterogeneous_oracle import random_mixed_cluster

from shardwright.spec.cluster.cluster_spec import ClusterSpec, LinkLevel


def in_zones(
    cluster: ClusterSpec,
    zones: Sequence[str],
    bandwidth_bytes_per_s: float = 1e9,
    latency_s: float = 1e-3,
) -> ClusterSpec:
    """A cluster with its groups in these zones, which links of these rates join."""
    groups = tuple(replace(g, zone=zone) for g, zone in zip(cluster.groups, zones, strict=True))
    placed = replace(cluster, groups=groups)
    (inside,) = cluster.levels
    between = LinkLevel(
        level="inter_zone",
        group_size=placed.device_count,
        fabric="1x100G-ETH",
        latency_s=latency_s,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
    )
    inside = replace(inside, group_size=placed.joined_counts[0])
    levels = (inside, between) if len(placed.zones) > 1 else (inside,)
    return replace(placed, levels=levels)


def random_zoned_cluster(source: random.Random) -> ClusterSpec:
    """Three groups of one or two devices in two zones, in any order, with typed links."""
    pair = random_mixed_cluster(source, (1, 1, 2))
    third = replace(source.choice(pair.groups), name="third")
    groups = source.sample([*pair.groups, third], 3)
    (join,) = pair.levels
    size = sum(group.device_count for group in groups)
    joined = replace(pair, groups=tuple(groups), levels=(replace(join, group_size=size),))
    zones = source.choice(["near near far", "near far near", "far near near"]).split()
    speed, latency_s = 10 ** source.uniform(7, 10), 10 ** source.uniform(-5, -2)
    return in_zones(joined, zones, speed, latency_s)
