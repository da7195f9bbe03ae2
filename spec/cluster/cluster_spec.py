"""ClusterSpec: devices, their nesting and memory. Rates live in the catalogues.

Devices of a group are numbered 0.. in the order of nodes and devices inside a node. Link levels
nest: ``intra_pair`` < ``intra_node`` < ``intra_rack`` < ``inter_rack`` < ``inter_zone``. A level
joins ``group_size`` consecutive devices; the last group of a level may be partial. Two devices
communicate over the innermost level whose group holds both, devices of different groups over
the ``inter_rack`` level that joins the groups. Where groups name several zones (data centers,
buildings), that level joins the groups of a zone, and ``inter_zone`` the zones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from ..limits import MAX_DEVICES_PER_NODE, MAX_NODES

LevelName = Literal["intra_pair", "intra_node", "intra_rack", "inter_rack", "inter_zone"]
LEVEL_ORDER: tuple[LevelName, ...] = (
    "intra_pair",
    "intra_node",
    "intra_rack",
    "inter_rack",
    "inter_zone",
)
PositiveFloat = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTiers:
    """Bytes per device of each memory tier.

    Host and nvme are absent unless given.
    """

    hbm_bytes: Annotated[int, Field(ge=1)]
    host_bytes: Annotated[int, Field(ge=0)] | None = None
    nvme_bytes: Annotated[int, Field(ge=0)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLevel:
    """One network level: a catalogue fabric, or typed rates.

    ``bandwidth_bytes_per_s`` is one direction of one device's link. With ``oversubscription`` 2
    half of it is left when every device sends out of its group at once.
    """

    level: LevelName
    group_size: Annotated[int, Field(ge=1)]
    fabric: str
    latency_s: PositiveFloat | None = None
    bandwidth_bytes_per_s: PositiveFloat | None = None
    oversubscription: Annotated[float, Field(ge=1)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """``nodes`` nodes of ``devices_per_node`` equal devices.

    ``device`` and ``node`` are catalogue names. ``memory`` is what each device has for the run,
    less than the catalogue's where a person capped it. ``levels`` are the link levels inside the
    group where a cluster has several groups, empty where it has one. ``zone`` names the site that
    it shares with other groups; all groups name one, or none does.
    """

    name: str
    device: str
    node: str
    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)]
    devices_per_node: Annotated[int, Field(ge=1, le=MAX_DEVICES_PER_NODE)]
    memory: MemoryTiers
    levels: tuple[LinkLevel, ...] = ()
    zone: str = ""

    @property
    def device_count(self) -> int:
        """Devices in the group."""
        return self.nodes * self.devices_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Device groups and the link levels over them, innermost level first.

    One group: ``levels`` are all of them. Several: each group has its own, and ``levels`` holds the
    one that joins the groups, or with several zones the one inside a zone and the one between them.
    """

    groups: tuple[DeviceGroup, ...]
    levels: tuple[LinkLevel, ...]

    @property
    def device_count(self) -> int:
        """Devices in all groups."""
        return sum(group.device_count for group in self.groups)

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of the groups, each once.

        One empty name where none is given.
        """
        return tuple(dict.fromkeys(group.zone for group in self.groups))

    @property
    def joined_counts(self) -> tuple[int, ...]:
        """Devices that each level between groups joins.

        The most of a zone if several, and all.
        """
        devices_by_zone = Counter[str]()
        for group in self.groups:
            devices_by_zone[group.zone] += group.device_count
        return (
            (max(devices_by_zone.values()), devices_by_zone.total())
            if len(devices_by_zone) > 1
            else (devices_by_zone.total(),)
        )

    def group(self, name: str) -> DeviceGroup:
        """The device group called ``name``.

        Raises:
            KeyError: if there is none.
        """
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)

    def alone(self, name: str) -> ClusterSpec:
        """The group called ``name`` as a cluster of its own."""
        if len(self.groups) == 1:
            return self
        group = self.group(name)
        return ClusterSpec(groups=(replace(group, levels=()),), levels=group.levels)

    def in_zone(self, zone: str) -> ClusterSpec:
        """The groups of a zone as a cluster of their own."""
        groups = tuple(group for group in self.groups if group.zone == zone)
        if len(groups) == 1:
            return self.alone(groups[0].name)
        size = sum(group.device_count for group in groups)
        return ClusterSpec(groups=groups, levels=(replace(self.levels[0], group_size=size),))

    def seen_from(self, name: str) -> ClusterSpec:
        """The group called ``name`` with all levels, inner and joining.

        Not a cluster to plan for: its outermost level spans more than its devices.
        """
        group_cluster = self.alone(name)
        if group_cluster is self:
            return self
        alone_in_zone = sum(group.zone == self.group(name).zone for group in self.groups) == 1
        outer_levels = self.levels[-1:] if alone_in_zone else self.levels
        return replace(group_cluster, levels=group_cluster.levels + outer_levels)

    def joined_at(self, name: str) -> ClusterSpec:
        """The group called ``name`` with only the levels that join groups."""
        return replace(self.alone(name), levels=self.levels)

    def joining(self, names: Collection[str]) -> tuple[LinkLevel, ...]:
        """The levels that join these groups, each named once.

        In a zone, between zones, or both.
        """
        zones = {self.group(name).zone for name in names}
        if len(zones) == 1:
            return self.levels[:1]
        return self.levels[-1:] if len(zones) == len(names) else self.levels

    def level_between(self, first: int, last: int) -> LinkLevel:
        """The innermost level whose group holds both devices (else the outermost)."""
        for level in self.levels:
            if first // level.group_size == last // level.group_size:
                return level
        return self.levels[-1]
