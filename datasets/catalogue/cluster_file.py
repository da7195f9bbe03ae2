"""A cluster in typed keys, as a person writes them in YAML or JSON.

    nodes: 16                            # required
    devices_per_node: 8                  # required
    device: H100-80GB                    # required; a catalogue device
    node: HGX-H100                       # left out: the device's usual node
    fabric: 8x400G-IB                    # between nodes; left out: the node's usual one, assumed
    oversubscription: 2                  # of the outermost network level; left out: 1
    nodes_per_rack: 4                    # splits the network into intra_rack and inter_rack
    memory_gib: 70                       # a device, context included; left out: all it has
    host_gib: 128                        # a device, of host memory; left out: none
    nvme_gib: 500                        # a device; left out: none
    intra_node_bandwidth_gb_per_s: 300   # typed rates: 10^9 bytes/s, one direction of one device
    intra_node_latency_us: 5             # and microseconds a step; left out: the catalogue's
    inter_node_bandwidth_gb_per_s: 25    # the level just above the node
    inter_node_latency_us: 10
    inter_rack_bandwidth_gb_per_s: 12.5  # with nodes_per_rack only
    inter_rack_latency_us: 20

Typed rates are nominal, like the catalogue's: the fabric's measured efficiency still applies.
A document with the keys ``groups`` and ``levels`` is a ClusterSpec as plans hold it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ...spec.cluster import ClusterSpec, DeviceGroup, LevelName, LinkLevel, MemoryTiers
from ...spec.codec import from_document
from ...spec.errors import InputError, NotBuiltError
from ...spec.noun_legality import cluster_problems
from ...spec.report import Assumption
from ...spec.typed_keys import TypedKeys
from ...spec.units import GIB
from .cluster_levels import node_levels, uses_network
from .device import Device, device
from .documents import read_document
from .fabric import fabric
from .node import Node, largest_node, node, node_holding, nodes
from .parsed_cluster import (
    GROUP,
    MAX_DEVICES_PER_NODE,
    MAX_NODES,
    ParsedCluster,
    assumed_network,
    device_assumptions,
    expansion,
)

REQUIRED = ("nodes", "devices_per_node", "device")
LEVEL_NAMES = ("intra_node", "inter_node", "inter_rack")
TYPED_RATES = tuple(
    f"{level}_{figure}" for level in LEVEL_NAMES for figure in ("bandwidth_gb_per_s", "latency_us")
)
KNOWN = (
    *REQUIRED,
    "node",
    "fabric",
    "oversubscription",
    "nodes_per_rack",
    "memory_gib",
    "host_gib",
    "nvme_gib",
    *TYPED_RATES,
)


def cluster_from_file(path: Path) -> ParsedCluster:
    """The cluster that a file describes.

    Raises:
        InputError: the file is unreadable, or a key is unknown, missing or unusable.
        NotBuiltError: several device groups.
    """
    document = read_document(path, "a cluster file")
    if "groups" in document:
        cluster = from_document(ClusterSpec, document, str(path))
        check_cluster(cluster, str(path))
        return ParsedCluster(cluster=cluster, assumptions=(), expansion=str(path))
    return cluster_from_keys(document, str(path))


def cluster_from_keys(document: dict[str, Any], where: str) -> ParsedCluster:
    """The cluster of typed keys, wherever they were typed."""
    keys = TypedKeys(document, where)
    keys.refuse_unknown(KNOWN)
    keys.require(REQUIRED)
    nodes = keys.count("nodes", most=MAX_NODES)
    per_node = keys.count("devices_per_node", most=MAX_DEVICES_PER_NODE)
    typed = keys.text("device")
    found = device(typed, where=f"{where}: device")
    host = _host(keys, found, per_node)
    memory, notes = _memory(keys, found)
    group = DeviceGroup(
        name=GROUP,
        device=found.name,
        node=host.name,
        nodes=nodes,
        devices_per_node=per_node,
        memory=memory,
    )
    levels, assumptions = _levels(keys, group, host, found)
    assumptions += [*device_assumptions(typed, found, host), *notes]
    cluster = ClusterSpec(groups=(group,), levels=tuple(levels))
    plain = set(document) <= {*REQUIRED, "fabric", "oversubscription"}
    text = expansion(cluster) if plain else where
    return ParsedCluster(cluster=cluster, assumptions=tuple(assumptions), expansion=text)


def _host(keys: TypedKeys, found: Device, per_node: int) -> Node:
    if keys.has("node"):
        named = node(keys.text("node"), where=f"{keys.where}: node")
        if found.name not in named.devices:
            built = [item.name for item in nodes().values() if found.name in item.devices]
            raise keys.error("node", f"a node with {found.name}", ", ".join(built))
        return named
    host, largest = node_holding(found.name, per_node), largest_node(found.name)
    if host is not None:
        return host
    if largest is not None and keys.has("intra_node_bandwidth_gb_per_s"):
        return largest
    allowed = "a device count that a catalogue node holds, or intra_node_bandwidth_gb_per_s"
    raise keys.error("devices_per_node", allowed, largest and largest.devices_per_node)


def _memory(keys: TypedKeys, found: Device) -> tuple[MemoryTiers, list[Assumption]]:
    hbm, notes = found.capacity_bytes, []
    if keys.has("memory_gib"):
        asked = int(keys.number("memory_gib") * GIB)
        if asked > max(found.nominal_memory_bytes, found.capacity_bytes):
            most = f"{found.capacity_bytes / GIB:.4g}"
            raise keys.error("memory_gib", f"at most what {found.name} has, {most}", most)
        if asked > found.capacity_bytes:
            why = f"{asked / GIB:g} GiB asked, but {found.name} leaves this much to processes"
            path = "cluster.groups.0.memory.hbm_bytes"
            notes.append(Assumption(path=path, value=found.capacity_bytes, why=why))
        hbm = min(asked, found.capacity_bytes)
    tiers = {
        f"{tier}_bytes": int(keys.number(f"{tier}_gib", exclusive=False) * GIB)
        for tier in ("host", "nvme")
        if keys.has(f"{tier}_gib")
    }
    return MemoryTiers(hbm_bytes=max(1, hbm), **tiers), notes


def _levels(
    keys: TypedKeys, group: DeviceGroup, host: Node, found: Device
) -> tuple[list[LinkLevel], list[Assumption]]:
    per_node = group.devices_per_node
    inner = [_with_typed(keys, level, found) for level in node_levels(host, per_node)]
    outer = 1.0
    if keys.has("oversubscription"):
        outer = keys.number("oversubscription", 1, exclusive=False)
    for key in ("nodes_per_rack", "inter_rack_bandwidth_gb_per_s", "inter_rack_latency_us"):
        racks = keys.has("nodes_per_rack") or host.rack_link is not None
        if key.startswith("inter_rack") and keys.has(key) and not racks:
            raise keys.error(key, "nothing without nodes_per_rack")
    network, notes = _network(keys, host, group)
    if group.nodes == 1:
        return inner, notes
    in_rack = _nodes_in_rack(keys, host, group.nodes)
    size = in_rack * per_node
    middle = _typed_level(keys, "inter_node", "intra_rack", size, host.rack_link or network, found)
    if in_rack == group.nodes:
        return [*inner, replace(middle, oversubscription=outer)], notes
    whole = -(-group.nodes // in_rack) * size  # the last rack may be partial
    top = _typed_level(keys, "inter_rack", "inter_rack", whole, network, found)
    return [*inner, middle, replace(top, oversubscription=outer)], notes


def _network(keys: TypedKeys, host: Node, group: DeviceGroup) -> tuple[str, list[Assumption]]:
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
    return _typed_level(keys, "intra_node", "intra_node", level.group_size, level.fabric, found)


def _typed_level(
    keys: TypedKeys, typed: str, level: LevelName, size: int, name: str, found: Device
) -> LinkLevel:
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


def check_cluster(cluster: ClusterSpec, where: str) -> None:
    """Refuse a cluster whose names are unknown or whose levels do not nest.

    Raises:
        InputError: the first problem found.
        NotBuiltError: several device groups.
    """
    if not cluster.groups or not cluster.levels:
        raise InputError(f"{where}: groups", "none", "at least one device group and one level")
    if len(cluster.groups) > 1:
        raise NotBuiltError(f"{where}: several device groups", "give one group")
    group = cluster.groups[0]
    for key, name, known in (
        ("device", group.device, device(group.device, where=f"{where}: groups.0.device").name),
        ("node", group.node, node(group.node, where=f"{where}: groups.0.node").name),
    ):
        if name != known:
            raise InputError(f"{where}: groups.0.{key}", name, "the catalogue's full name", known)
    for number, level in enumerate(cluster.levels):
        fabric(level.fabric, where=f"{where}: levels.{number}.fabric")
    for problem in cluster_problems(cluster):
        raise problem.error(where)
