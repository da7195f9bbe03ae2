"""ParsedCluster: the common result of all ways to name a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.cluster.cluster_spec import ClusterSpec, LinkLevel
from ...spec.report.report import Assumption
from ..catalogue.device import Device
from ..catalogue.fabric import fabric
from ..catalogue.node import Node
from .levels import Network

MAX_GROUPS = 64
GROUP = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCluster:
    """A cluster, the assumptions made, and its full text.

    ``network`` joins its nodes, or would join them to others.
    """

    cluster: ClusterSpec
    assumptions: tuple[Assumption, ...]
    expansion: str
    network: Network | None = None


def assumed_network(network: str, host: Node, level: int = 1) -> Assumption:
    """The assumption of the usual network ``level`` levels up."""
    why = f"no fabric given; the usual network of {host.name} nodes"
    return Assumption(path=f"cluster.levels.{level}.fabric", value=network, why=why)


def device_assumptions(typed: str, device: Device, host: Node) -> list[Assumption]:
    """Assumptions on what the device's name left open: full name, node, link."""
    notes = []
    if typed.casefold() != device.name.casefold():
        why = f"{typed} means this: the usual memory size, SXM where a device has forms"
        notes.append(Assumption(path="cluster.groups.0.device", value=device.name, why=why))
    if device.note:
        notes.append(Assumption(path="cluster.groups.0.device", value=device.name, why=device.note))
    why = f"the usual node of {device.name}" if device.name in host.usual_for else "it holds them"
    notes.append(
        Assumption(path="cluster.groups.0.node", value=host.name, why=f"{why}; link {host.link}")
    )
    return notes


def is_one_node(cluster: ClusterSpec) -> bool:
    """True if several groups are kinds of device in one node."""
    return len(cluster.groups) > 1 and fabric(cluster.levels[0].fabric).scope == "node"


def expansion(cluster: ClusterSpec) -> str:
    """The text that :func:`parse_cluster` reads as a cluster of this shape.

    Zones have no such text; they are named after that of the groups.
    """
    if len(cluster.groups) > 1:
        parts = [expansion(cluster.alone(group.name)) for group in cluster.groups]
        if is_one_node(cluster):
            kinds = "+".join(part.removeprefix("1x") for part in parts)
            return f"1x({kinds}{_network_text(cluster.levels[0])})"
        text = "+".join([*parts, _network_text(cluster.levels[0])])
        if len(cluster.zones) == 1:
            return text
        zones = ", ".join(group.zone for group in cluster.groups)
        return f"{text} in zones {zones} {_network_text(cluster.levels[1])}"
    group = cluster.groups[0]
    text = f"{group.nodes}x{group.devices_per_node}x{group.device}"
    level = cluster.levels[-1]
    networked = fabric(level.fabric).scope == "network"
    return text + _network_text(level) if networked else text


def _network_text(level: LinkLevel) -> str:
    options = f":oversub={level.oversubscription:g}" if level.oversubscription != 1 else ""
    return f"@{level.fabric}{options}"
