"""Nodes: devices that share a host, their link, and their network adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from ...spec.errors import InputError, nearest_name
from .fabric import Fabric, fabric
from .tables import figure, read_table

FIGURES = (
    "devices_per_node",
    "link",
    "network",
    "host_memory_bytes",
    "devices_per_host_link",
    "drive_read_bytes_per_s",
    "drive_write_bytes_per_s",
)
PAIR_FIGURES = ("devices_per_pair", "pair_link")
RACK_FIGURES = ("devices_per_rack", "rack_link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A catalogue node: at most ``devices_per_node`` devices.

    ``link`` and ``network`` are fabric names; ``host_memory_bytes`` is the host's memory, which a
    cluster has only if a person grants it. ``devices_per_host_link`` devices share one link to the
    host, as behind a PCI Express switch; 1: each has its own. All devices of the node share its
    drives and their rates. ``usual_for`` lists the devices whose usual node it is.
    Where consecutive devices share a package, ``devices_per_pair`` of them are joined by
    ``pair_link``; where nodes share a rack's own fabric, ``devices_per_rack`` by ``rack_link``.
    """

    name: str
    devices: tuple[str, ...]
    usual_for: tuple[str, ...]
    devices_per_node: int
    link: str
    network: str
    host_memory_bytes: int
    devices_per_host_link: int
    drive_read_bytes_per_s: float
    drive_write_bytes_per_s: float
    sources: Mapping[str, str] = field(hash=False)
    devices_per_pair: int | None = None
    pair_link: str | None = None
    devices_per_rack: int | None = None
    rack_link: str | None = None

    @property
    def link_fabric(self) -> Fabric:
        """The fabric between the node's devices."""
        return fabric(self.link, scope="node")

    @property
    def network_fabric(self) -> Fabric:
        """The usual fabric between nodes of this kind."""
        return fabric(self.network, scope="network")

    @property
    def nodes_per_rack(self) -> int | None:
        """Nodes on a rack's own fabric; None if racks have none."""
        return self.devices_per_rack and self.devices_per_rack // self.devices_per_node


@cache
def nodes() -> Mapping[str, Node]:
    """Every node by name, in catalogue order."""
    table = {}
    for name, row in read_table("nodes").items():
        sources: dict[str, str] = {}
        present = [key for key in (*PAIR_FIGURES, *RACK_FIGURES) if key in row]
        values = {key: figure(row, key, sources) for key in (*FIGURES, *present)}
        devices, usual_for = tuple(row["devices"]), tuple(row["usual_for"])
        table[name] = Node(
            name=name, devices=devices, usual_for=usual_for, sources=sources, **values
        )
    return table


def node(name: str, where: str = "node") -> Node:
    """The node called ``name``, upper and lower case alike.

    Raises:
        InputError: no such node; the nearest names are given.
    """
    by_name = {key.casefold(): item for key, item in nodes().items()}
    match = by_name.get(name.casefold())
    if match is None:
        allowed = "a node of the catalogue: " + ", ".join(nodes())
        raise InputError(where, name, allowed, nearest_name(name, nodes()))
    return match


def usual_node(device_name: str) -> Node | None:
    """The usual node of a device; None if the catalogue has none."""
    return next((n for n in nodes().values() if device_name in n.usual_for), None)


def node_holding(device_name: str, count: int) -> Node | None:
    """The usual node, or else the smallest, with ``count`` devices."""
    candidates = [
        n for n in nodes().values() if device_name in n.devices and n.devices_per_node >= count
    ]
    return min(
        candidates, key=lambda n: (device_name not in n.usual_for, n.devices_per_node), default=None
    )


def largest_node(device_name: str) -> Node | None:
    """The node that holds most of a device.

    None if no catalogue node has it.
    """
    candidates = [n for n in nodes().values() if device_name in n.devices]
    return max(candidates, key=lambda n: n.devices_per_node, default=None)
