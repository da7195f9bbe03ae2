"""What every way of naming a cluster gives: the cluster, its assumptions, its whole text."""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.cluster import ClusterSpec
from ...spec.report import Assumption
from .device import Device
from .node import Node

MAX_NODES, MAX_DEVICES_PER_NODE = 2**24, 2**16
GROUP = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCluster:
    """A cluster, what was assumed of it, and the text that says all of it."""

    cluster: ClusterSpec
    assumptions: tuple[Assumption, ...]
    expansion: str


def assumed_network(network: str, host: Node) -> Assumption:
    """The assumption that nodes are joined by their usual network."""
    why = f"no fabric given; the usual network of {host.name} nodes"
    return Assumption(path="cluster.levels.1.fabric", value=network, why=why)


def device_assumptions(typed: str, found: Device, host: Node) -> list[Assumption]:
    """What the name of the device left open, and which node and link its devices share."""
    notes = []
    if typed.casefold() != found.name.casefold():
        why = f"{typed} means this: the usual memory size, SXM where a device has forms"
        notes.append(Assumption(path="cluster.groups.0.device", value=found.name, why=why))
    why = f"the usual node of {found.name}" if found.name in host.usual_for else "it holds them"
    notes.append(
        Assumption(path="cluster.groups.0.node", value=host.name, why=f"{why}; link {host.link}")
    )
    return notes


def expansion(cluster: ClusterSpec) -> str:
    """The text that :func:`parse_cluster` reads as a cluster of this shape."""
    group = cluster.groups[0]
    text = f"{group.nodes}x{group.devices_per_node}x{group.device}"
    if group.nodes > 1:
        level = cluster.levels[-1]
        text += f"@{level.fabric}"
        text += f":oversub={level.oversubscription:g}" if level.oversubscription != 1 else ""
    return text
