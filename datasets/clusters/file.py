"""Clusters in typed keys of a YAML or JSON file.

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
    zone: east                           # of several groups: the place that it shares with others

Typed rates are nominal, like the catalogue's: the fabric's measured efficiency still applies.
Several device groups are a list of such documents, and what joins them (left out: the slowest of
their networks, assumed):

    groups: [{nodes: 2, devices_per_node: 8, device: H100-80GB}, {…}]
    fabric: 1x100G-ETH
    oversubscription: 2
    inter_zone_fabric: 1x100G-ETH        # between zones, where groups name several; left out: as
    inter_zone_bandwidth_gb_per_s: 1.25  # between groups of one zone, assumed
    inter_zone_latency_us: 5000          # rates with inter_zone_fabric only

A document with the keys ``groups`` and ``levels`` is a ClusterSpec as plans hold it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, LinkLevel, MemoryTiers
from ...spec.codec import from_document
from ...spec.errors import InputError
from ...spec.inputs.typed_keys import TypedKeys
from ...spec.limits import MAX_DEVICES_PER_NODE, MAX_NODES
from ...spec.report.report import Assumption
from ...spec.units import GIB
from ..catalogue.device import Device, device
from ..catalogue.documents import read_document
from ..catalogue.fabric import fabric
from ..catalogue.node import Node, largest_node, node, node_holding, nodes
from .check import check_cluster
from .joined import join_groups
from .levels import Network
from .parsed_cluster import (
    GROUP,
    ParsedCluster,
    device_assumptions,
    expansion,
)
from .typed_levels import typed_level, typed_levels, typed_network

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
    "zone",
    *TYPED_RATES,
)
ZONE_RATES = ("inter_zone_bandwidth_gb_per_s", "inter_zone_latency_us")


def cluster_from_file(path: Path) -> ParsedCluster:
    """The cluster of a file.

    Raises:
        InputError: the file is unreadable, or a key is unknown, missing or unusable.
    """
    document = read_document(path, "a cluster file")
    if is_spec(document):
        cluster = from_document(ClusterSpec, document, str(path))
        check_cluster(cluster, str(path))
        return ParsedCluster(cluster=cluster, assumptions=(), expansion=str(path))
    return cluster_from_keys(document, str(path))


def is_spec(document: Mapping[str, Any]) -> bool:
    """True for a ClusterSpec as plans hold it, not typed keys."""
    return "levels" in document


def cluster_from_keys(document: Mapping[str, Any], where: str) -> ParsedCluster:
    """The cluster of typed keys.

    Raises:
        InputError: a key is unknown, missing or unusable.
    """
    if "groups" in document:
        return _several_groups(TypedKeys(document, where))
    return _one_group(document, where)


def _several_groups(keys: TypedKeys) -> ParsedCluster:
    keys.refuse_unknown(("groups", "fabric", "oversubscription", "inter_zone_fabric", *ZONE_RATES))
    groups = keys.document["groups"]
    if not isinstance(groups, list) or len(groups) < 2:
        raise keys.error("groups", "a list of at least two groups of typed keys")
    parts = []
    for number, group in enumerate(groups):
        path = f"{keys.where}: groups.{number}"
        if not isinstance(group, Mapping):
            raise InputError(path, type(group).__name__, "typed keys of one group")
        parts.append(_one_group(group, path))
    join = None
    if keys.has("fabric"):
        name = keys.text("fabric")
        join = Network(fabric=fabric(name, f"{keys.where}: fabric", scope="network").name)
    if keys.has("oversubscription"):
        if join is None:
            raise keys.error("oversubscription", "nothing without fabric, which joins the groups")
        join = replace(join, oversubscription=keys.number("oversubscription", 1, exclusive=False))
    clusters = [part.cluster for part in parts]
    return join_groups(parts, join, keys.where, keys.where, _between_zones(keys, clusters))


def _between_zones(keys: TypedKeys, clusters: Sequence[ClusterSpec]) -> LinkLevel | None:
    """The typed level that joins zones.

    Its size is that of the whole cluster.
    """
    groups = [cluster.groups[0] for cluster in clusters]
    key = keys.has("inter_zone_fabric", *ZONE_RATES)
    if key is None:
        return None
    if len({group.zone for group in groups}) == 1:
        raise keys.error(key, "nothing without groups in several zones")
    if key != "inter_zone_fabric":
        raise keys.error(key, "nothing without inter_zone_fabric")
    name = keys.text("inter_zone_fabric")
    fabric_name = fabric(name, f"{keys.where}: inter_zone_fabric", scope="network").name
    size = sum(group.device_count for group in groups)
    return typed_level(
        keys, "inter_zone", "inter_zone", size, fabric_name, device(groups[0].device)
    )


def _one_group(document: Mapping[str, Any], where: str) -> ParsedCluster:
    keys = TypedKeys(document, where)
    keys.refuse_unknown(KNOWN)
    keys.require(REQUIRED)
    nodes = keys.count("nodes", most=MAX_NODES)
    per_node = keys.count("devices_per_node", most=MAX_DEVICES_PER_NODE)
    device_name = keys.text("device")
    catalogue_device = device(device_name, where=f"{where}: device")
    host = _host(keys, catalogue_device, per_node)
    memory, notes = _memory(keys, catalogue_device)
    group = DeviceGroup(
        name=GROUP,
        device=catalogue_device.name,
        node=host.name,
        nodes=nodes,
        devices_per_node=per_node,
        memory=memory,
        zone=keys.text("zone") if keys.has("zone") else "",
    )
    levels, assumptions = typed_levels(keys, group, host, catalogue_device)
    assumptions += [*device_assumptions(device_name, catalogue_device, host), *notes]
    cluster = ClusterSpec(groups=(group,), levels=tuple(levels))
    is_countable = set(document) <= {*REQUIRED, "fabric", "oversubscription"}
    text = expansion(cluster) if is_countable else where
    outer = levels[-1]
    network = Network(fabric=outer.fabric, oversubscription=outer.oversubscription)
    if fabric(outer.fabric).scope != "network":
        network = Network(fabric=typed_network(keys, host, group)[0])
    return ParsedCluster(
        cluster=cluster, assumptions=tuple(assumptions), expansion=text, network=network
    )


def _host(keys: TypedKeys, device: Device, per_node: int) -> Node:
    if keys.has("node"):
        named_node = node(keys.text("node"), where=f"{keys.where}: node")
        if device.name not in named_node.devices:
            candidates = [item.name for item in nodes().values() if device.name in item.devices]
            raise keys.error("node", f"a node with {device.name}", ", ".join(candidates))
        return named_node
    host, largest = node_holding(device.name, per_node), largest_node(device.name)
    if host is not None:
        return host
    if largest is not None and keys.has("intra_node_bandwidth_gb_per_s"):
        return largest
    allowed = "a device count that a catalogue node holds, or intra_node_bandwidth_gb_per_s"
    raise keys.error("devices_per_node", allowed, largest and largest.devices_per_node)


def _memory(keys: TypedKeys, device: Device) -> tuple[MemoryTiers, list[Assumption]]:
    hbm, notes = device.capacity_bytes, []
    if keys.has("memory_gib"):
        requested = int(keys.number("memory_gib") * GIB)
        if requested > max(device.nominal_memory_bytes, device.capacity_bytes):
            most = f"{device.capacity_bytes / GIB:.4g}"
            raise keys.error("memory_gib", f"at most what {device.name} has, {most}", most)
        if requested > device.capacity_bytes:
            why = f"{requested / GIB:g} GiB asked, but {device.name} leaves this much to processes"
            path = "cluster.groups.0.memory.hbm_bytes"
            notes.append(Assumption(path=path, value=device.capacity_bytes, why=why))
        hbm = min(requested, device.capacity_bytes)
    tiers = {
        f"{tier}_bytes": int(keys.number(f"{tier}_gib", exclusive=False) * GIB)
        for tier in ("host", "nvme")
        if keys.has(f"{tier}_gib")
    }
    return MemoryTiers(hbm_bytes=max(1, hbm), **tiers), notes
