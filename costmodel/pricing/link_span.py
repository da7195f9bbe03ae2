"""Link levels spanned by a stage's process groups.

Aligned stages (the first device a multiple of the width) cross a number of innermost levels.
Unaligned ones, and those with devices of several groups, cut the levels' groups: of a level of
``size`` devices only blocks count that always stay inside it. With the stage's ranks o to e in a
device group from its device f on, the largest such block is gcd(size, f - o, o), and of e where
other devices follow: the stage's blocks are as fine as the edges among them. That never prices a
group as nearer than it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from ...spec.cluster.cluster_spec import ClusterSpec, LinkLevel
from ...spec.plan.plan import Stage
from .machine import Machine


class UnalignedLinkSpan(NamedTuple):
    """Devices per block of the innermost levels of an unaligned stage.

    ``sizes`` ends at the level that holds the rest. ``others``: those of the stage's other device
    groups, by name, whose collectives cross joining levels. With several zones, ``in_zone`` devices
    count as together in one.
    """

    sizes: tuple[int, ...]
    others: tuple[tuple[str, tuple[int, ...]], ...] = ()
    in_zone: int = 0


LinkSpan = int | UnalignedLinkSpan


def is_aligned(stage: Stage) -> bool:
    """True for one device group that starts at a width multiple."""
    first = stage.devices[0]
    return len(stage.devices) == 1 and first.first_rank % first.count == 0


def stage_link_spans(
    cluster: ClusterSpec, stage: Stage, machine: Machine, used: int
) -> list[LinkSpan]:
    """Link spans of a stage, seen from each of its groups.

    ``machine``: the stage's (first) device group by itself; ``used``: its devices from the first to
    the last that a plan holds.
    """
    if is_aligned(stage):
        return [machine.link_span_of(stage.device_count, used)]
    sizes_by_group = [
        (devices.device_group, _sizes(cluster, stage, n)) for n, devices in enumerate(stage.devices)
    ]
    in_zone = _in_zone(cluster, stage)
    return [
        UnalignedLinkSpan(
            sizes, tuple(other for other in sizes_by_group if other[0] != name), in_zone
        )
        for name, sizes in sizes_by_group
    ]


def _in_zone(cluster: ClusterSpec, stage: Stage) -> int:
    """Largest block within one zone wherever it lies; 0 for all."""
    zones = [cluster.group(devices.device_group).zone for devices in stage.devices]
    cuts = accumulate(devices.count for devices in stage.devices)
    pairs = zip(cuts, pairwise(zones), strict=False)
    return math.gcd(*(cut for cut, (zone, following) in pairs if zone != following))


def _sizes(cluster: ClusterSpec, stage: Stage, number: int) -> tuple[int, ...]:
    """Blocks inside a device group's levels, up to its whole part."""
    devices = stage.devices[number]
    starts = list(accumulate((p.count for p in stage.devices), initial=0))
    start, end = starts[number], starts[number + 1]
    last = number + 1 == len(stage.devices)
    edge = 0 if last else end
    sizes = []
    for level in cluster.alone(devices.device_group).levels:
        size = level.group_size
        fits = devices.first_rank // size == (devices.first_rank + devices.count - 1) // size
        if fits:
            sizes.append(math.gcd(start, edge) or devices.count)
            break
        sizes.append(math.gcd(size, devices.first_rank - start, start, edge))
    return tuple(sizes)


def joining_levels(
    cluster: ClusterSpec, groups: Collection[str], in_zone: int
) -> tuple[LinkLevel, ...]:
    """Levels that join device groups, with ``in_zone`` devices of a zone together."""
    levels = cluster.joining(groups)
    if len(levels) == 1:
        return levels
    return replace(levels[0], group_size=in_zone), levels[1]


def cut_cluster(
    cluster: ClusterSpec, group: str, sizes: tuple[int, ...], joined: tuple[LinkLevel, ...] = ()
) -> ClusterSpec:
    """A device group whose innermost levels hold ``sizes`` devices each.

    ``sizes`` go from the innermost on; ``joined``: levels after them, which join device groups.
    """
    alone = cluster.alone(group)
    cut = zip(alone.levels, sizes, strict=False)
    levels = tuple(replace(level, group_size=size) for level, size in cut)
    return replace(alone, levels=levels + joined)
