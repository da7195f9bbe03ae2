"""ClusterSpec: which devices, how they nest, what they hold. Rates live in the catalogues.

Devices of a group are numbered 0.. in the order of nodes and devices inside a node. Link levels
nest: ``intra_pair`` < ``intra_node`` < ``intra_rack`` < ``inter_rack``. A level joins
``group_size`` consecutive devices; the last group of a level may be partial. Two devices talk
over the innermost level whose group holds both; devices of different groups over the
``inter_rack`` level that joins all groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

LevelName = Literal["intra_pair", "intra_node", "intra_rack", "inter_rack"]
LEVEL_ORDER: tuple[LevelName, ...] = ("intra_pair", "intra_node", "intra_rack", "inter_rack")
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTiers:
    """Bytes per device of each memory tier; host and nvme are absent unless given."""

    hbm_bytes: Annotated[int, Field(ge=1)]
    host_bytes: Annotated[int, Field(ge=0)] | None = None
    nvme_bytes: Annotated[int, Field(ge=0)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLevel:
    """One level of the network: a catalogue fabric, or rates that a person typed.

    ``bandwidth_bytes_per_s`` is one direction of one device's link; ``oversubscription`` 2
    means that half of it is left when every device sends out of its group at once.
    """

    level: LevelName
    group_size: Annotated[int, Field(ge=1)]
    fabric: str
    latency_s: Positive | None = None
    bandwidth_bytes_per_s: Positive | None = None
    oversubscription: Annotated[float, Field(ge=1)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """``nodes`` nodes of ``devices_per_node`` equal devices.

    ``device`` and ``node`` are catalogue names. ``memory`` is what each device has for the
    run; it differs from the catalogue where a person capped it. ``levels`` are the link levels
    inside the group where a cluster has several groups, and empty where it has one.
    """

    name: str
    device: str
    node: str
    nodes: Annotated[int, Field(ge=1, le=2**24)]
    devices_per_node: Annotated[int, Field(ge=1, le=2**16)]
    memory: MemoryTiers
    levels: tuple[LinkLevel, ...] = ()

    @property
    def device_count(self) -> int:
        """Devices in the group."""
        return self.nodes * self.devices_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Device groups and the link levels over them, innermost level first.

    One group: ``levels`` are all of them. Several: each group has its own, and ``levels`` is the
    one that joins the groups.
    """

    groups: tuple[DeviceGroup, ...]
    levels: tuple[LinkLevel, ...]

    @property
    def device_count(self) -> int:
        """Devices in all groups."""
        return sum(group.device_count for group in self.groups)

    def group(self, name: str) -> DeviceGroup:
        """The device group called ``name`` (KeyError if there is none)."""
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)

    def alone(self, name: str) -> ClusterSpec:
        """The cluster that the group called ``name`` is by itself."""
        if len(self.groups) == 1:
            return self
        group = self.group(name)
        return ClusterSpec(groups=(replace(group, levels=()),), levels=group.levels)

    def seen_from(self, name: str) -> ClusterSpec:
        """The group called ``name`` and, around its own levels, the one that joins all groups.

        Not a cluster that can be asked for: its outermost level reaches past its devices.
        """
        inside = self.alone(name)
        return self if inside is self else replace(inside, levels=inside.levels + self.levels)

    def joined_at(self, name: str) -> ClusterSpec:
        """The group called ``name`` with nothing but the level that joins all groups."""
        return replace(self.alone(name), levels=self.levels)

    def level_between(self, first: int, last: int) -> LinkLevel:
        """The innermost level whose group holds both device numbers (the outermost if none)."""
        for level in self.levels:
            if first // level.group_size == last // level.group_size:
                return level
        return self.levels[-1]
