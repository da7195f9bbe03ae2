"""Link levels of a cluster in typed keys, with typed rates."""

from __future__ import annotations

from dataclasses import replace

from ...spec.cluster.cluster_spec import DeviceGroup, LevelName, LinkLevel
from ...spec.inputs.typed_keys import TypedKeys
from ...spec.limits import MIN_BYTES_PER_S
from ...spec.report.report import Assumption
from ..catalogue.device import Device
from ..catalogue.fabric import fabric
from ..catalogue.node import Node
from .levels import node_levels, uses_network
from .parsed_cluster import assumed_network


def typed_levels(
    keys: TypedKeys, group: DeviceGroup, host: Node, device: Device
) -> tuple[list[LinkLevel], list[Assumption]]:
    """The levels of a group, innermost first, and the assumptions made.

    Raises:
        InputError: an impossible rate or count.
    """
    per_node = group.devices_per_node
    inner = [_with_typed(keys, level, device) for level in node_levels(host, per_node)]
    oversubscription = 1.0
    if keys.has("oversubscription"):
        oversubscription = keys.number("oversubscription", 1, exclusive=False)
    for key in ("nodes_per_rack", "inter_rack_bandwidth_gb_per_s", "inter_rack_latency_us"):
        racks = keys.has("nodes_per_rack") or host.rack_link is not None
        if key.startswith("inter_rack") and keys.has(key) and not racks:
            raise keys.error(key, "nothing without nodes_per_rack")
    network, notes = typed_network(keys, host, group)
    if group.nodes == 1:
        return inner, notes
    in_rack = _nodes_in_rack(keys, host, group.nodes)
    size = in_rack * per_node
    middle = typed_level(keys, "inter_node", "intra_rack", size, host.rack_link or network, device)
    if in_rack == group.nodes:
        return [*inner, replace(middle, oversubscription=oversubscription)], notes
    total = -(-group.nodes // in_rack) * size  # the last rack may be partial
    top = typed_level(keys, "inter_rack", "inter_rack", total, network, device)
    return [*inner, middle, replace(top, oversubscription=oversubscription)], notes


def typed_network(keys: TypedKeys, host: Node, group: DeviceGroup) -> tuple[str, list[Assumption]]:
    """The fabric between nodes or racks, and the assumptions made."""
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
    nodes_per_rack = keys.count("nodes_per_rack", most=nodes)
    if host.nodes_per_rack is not None and nodes_per_rack > host.nodes_per_rack:
        allowed = f"at most the {host.nodes_per_rack} nodes that {host.rack_link} joins"
        raise keys.error("nodes_per_rack", allowed, host.nodes_per_rack)
    return nodes_per_rack


def _with_typed(keys: TypedKeys, level: LinkLevel, device: Device) -> LinkLevel:
    if level.level != "intra_node":
        return level
    return typed_level(keys, "intra_node", "intra_node", level.group_size, level.fabric, device)


def typed_level(
    keys: TypedKeys, prefix: str, level: LevelName, size: int, name: str, device: Device
) -> LinkLevel:
    """A level over the fabric ``name`` with its typed rates.

    Raises:
        InputError: an impossible rate.
    """
    bandwidth = latency = None
    if keys.has(f"{prefix}_bandwidth_gb_per_s"):
        key = f"{prefix}_bandwidth_gb_per_s"
        bandwidth = keys.number(key) * 1e9
        if bandwidth < MIN_BYTES_PER_S:
            raise keys.error(key, f"at least {MIN_BYTES_PER_S / 1e9:g}, a byte a second", "1e-9")
        if bandwidth > device.memory_bandwidth_bytes_per_s:
            most = device.memory_bandwidth_bytes_per_s / 1e9
            allowed = f"gigabytes, not gigabits, and at most {most:g}, the device's own memory"
            raise keys.error(key, allowed, f"{min(most, bandwidth / 8e9):g}")
    if keys.has(f"{prefix}_latency_us"):
        latency = keys.number(f"{prefix}_latency_us") * 1e-6
    return LinkLevel(
        level=level,
        group_size=size,
        fabric=name,
        latency_s=latency,
        bandwidth_bytes_per_s=bandwidth,
    )
