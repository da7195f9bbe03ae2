"""The link levels of a cluster that a person typed in keys, with the rates that were typed."""

from __future__ import annotations

from dataclasses import replace

from ...spec.cluster.cluster_spec import DeviceGroup, LevelName, LinkLevel
from ...spec.inputs.typed_keys import TypedKeys
from ...spec.report.report import Assumption
from ..catalogue.device import Device
from ..catalogue.fabric import fabric
from ..catalogue.node import Node
from .levels import node_levels, uses_network
from .parsed_cluster import assumed_network


def typed_levels(
    keys: TypedKeys, group: DeviceGroup, host: Node, found: Device
) -> tuple[list[LinkLevel], list[Assumption]]:
    """The levels of a group, innermost first, and what was assumed of them.

    Raises:
        InputError: a rate or a count that cannot be.
    """
    per_node = group.devices_per_node
    inner = [_with_typed(keys, level, found) for level in node_levels(host, per_node)]
    outer = 1.0
    if keys.has("oversubscription"):
        outer = keys.number("oversubscription", 1, exclusive=False)
    for key in ("nodes_per_rack", "inter_rack_bandwidth_gb_per_s", "inter_rack_latency_us"):
        racks = keys.has("nodes_per_rack") or host.rack_link is not None
        if key.startswith("inter_rack") and keys.has(key) and not racks:
            raise keys.error(key, "nothing without nodes_per_rack")
    network, notes = typed_network(keys, host, group)
    if group.nodes == 1:
        return inner, notes
    in_rack = _nodes_in_rack(keys, host, group.nodes)
    size = in_rack * per_node
    middle = typed_level(keys, "inter_node", "intra_rack", size, host.rack_link or network, found)
    if in_rack == group.nodes:
        return [*inner, replace(middle, oversubscription=outer)], notes
    whole = -(-group.nodes // in_rack) * size  # the last rack may be partial
    top = typed_level(keys, "inter_rack", "inter_rack", whole, network, found)
    return [*inner, middle, replace(top, oversubscription=outer)], notes


def typed_network(keys: TypedKeys, host: Node, group: DeviceGroup) -> tuple[str, list[Assumption]]:
    """The fabric between nodes, or between racks that have their own, and whether assumed."""
    if keys.has("fabric"):
        name = keys.text("fabric")
        return fabric(name, where=f"{keys.where}: fabric", scope="network").name, []
    if not uses_network(host, group.nodes):
        return host.network, []
    levels = len(node_levels(host, group.devices_per_node))
    above = levels + (1 if host.rack_link is not None else 0)
    return host.network, [assumed_network(host.network, host, above)]


def _nodes_in_rack(keys: TypedKeys, host: Node, nodes: int) -> int:
    if not keys.has("nodes_per_rack"):
        return min(nodes, host.nodes_per_rack or nodes)
    typed = keys.count("nodes_per_rack", most=nodes)
    if host.nodes_per_rack is not None and typed > host.nodes_per_rack:
        allowed = f"at most the {host.nodes_per_rack} nodes that {host.rack_link} joins"
        raise keys.error("nodes_per_rack", allowed, host.nodes_per_rack)
    return typed


def _with_typed(keys: TypedKeys, level: LinkLevel, found: Device) -> LinkLevel:
    """A level inside the node, with what was typed of the node's."""
    if level.level != "intra_node":
        return level
    return typed_level(keys, "intra_node", "intra_node", level.group_size, level.fabric, found)


def typed_level(
    keys: TypedKeys, typed: str, level: LevelName, size: int, name: str, found: Device
) -> LinkLevel:
    """A level over the fabric ``name`` with the rates that were typed of it.

    Args:
        keys: of the document.
        typed: what its keys begin with.
        level: which level it is.
        size: devices of a group of it.
        name: its fabric.
        found: a device that it joins.

    Raises:
        InputError: a rate that cannot be.
    """
    bandwidth = latency = None
    if keys.has(f"{typed}_bandwidth_gb_per_s"):
        key = f"{typed}_bandwidth_gb_per_s"
        bandwidth = keys.number(key) * 1e9
        if bandwidth > found.memory_bandwidth_bytes_per_s:
            most = found.memory_bandwidth_bytes_per_s / 1e9
            allowed = f"gigabytes, not gigabits, and at most {most:g}, the device's own memory"
            raise keys.error(key, allowed, f"{min(most, bandwidth / 8e9):g}")
    if keys.has(f"{typed}_latency_us"):
        latency = keys.number(f"{typed}_latency_us") * 1e-6
    return LinkLevel(
        level=level,
        group_size=size,
        fabric=name,
        latency_s=latency,
        bandwidth_bytes_per_s=bandwidth,
    )
