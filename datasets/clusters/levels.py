"""Link levels of a group of nodes: package pair, node, rack, network.

Where a rack has a fabric of its own (``Node.rack_link``), the level just above the node is the
rack and the network joins racks; elsewhere the network is that level. The last rack may be
partial: its level's group size is that of a full one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.cluster.cluster_spec import LinkLevel
from ...spec.report.report import Assumption
from ..catalogue.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network fabric by name, and its oversubscription."""

    fabric: str
    oversubscription: float = 1.0


def node_levels(host: Node, per_node: int) -> list[LinkLevel]:
    """The levels inside a ``host`` node with ``per_node`` devices."""
    levels = []
    pair, link = host.devices_per_pair, host.pair_link
    if pair is not None and link is not None and per_node > pair and per_node % pair == 0:
        levels.append(LinkLevel(level="intra_pair", group_size=pair, fabric=link))
    inner = link if pair == per_node and link is not None else host.link
    return [*levels, LinkLevel(level="intra_node", group_size=per_node, fabric=inner)]


def outer_levels(host: Node, nodes: int, per_node: int, network: Network) -> list[LinkLevel]:
    """Levels above the node.

    None for one, else a rack's own fabric, a network, or both.
    """
    devices, rack = nodes * per_node, host.nodes_per_rack
    if nodes == 1:
        return []
    if rack is None or host.rack_link is None:
        return [_network_level("intra_rack", devices, network)]
    size = rack * per_node
    rack_level = LinkLevel(level="intra_rack", group_size=min(size, devices), fabric=host.rack_link)
    if devices <= size:
        return [rack_level]
    return [rack_level, _network_level("inter_rack", -(-devices // size) * size, network)]


def _network_level(level: str, size: int, network: Network) -> LinkLevel:
    return LinkLevel(
        level=level,  # type: ignore[arg-type]
        group_size=size,
        fabric=network.fabric,
        oversubscription=network.oversubscription,
    )


def uses_network(host: Node, nodes: int) -> bool:
    """True if a network joins ``nodes`` such nodes."""
    return nodes > (host.nodes_per_rack or 1)


def rack_assumption(host: Node, nodes: int) -> list[Assumption]:
    """The assumption that nodes with a rack's own fabric fill whole racks."""
    if nodes == 1 or host.rack_link is None:
        return []
    why = f"racks of {host.nodes_per_rack} {host.name} nodes, joined inside by {host.rack_link}"
    return [Assumption(path="cluster.levels", value=host.devices_per_rack, why=why)]
