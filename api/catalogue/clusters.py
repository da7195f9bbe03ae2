"""Devices, nodes and fabrics as a JSON document with sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from ...datasets.catalogue.device import Device, device, devices
from ...datasets.catalogue.disagreements import disagreements
from ...datasets.catalogue.fabric import Fabric, fabrics
from ...datasets.catalogue.instance import Instance, instances
from ...datasets.catalogue.links import link_rates
from ...datasets.catalogue.local import core_count, memory_bytes
from ...datasets.catalogue.node import Node, nodes
from ...datasets.catalogue.source_kind import source_kinds
from ...datasets.clusters.cloud_instances import counted_instance
from ...datasets.clusters.parse import parse_cluster
from ...datasets.clusters.parsed_cluster import ParsedCluster
from ...spec.cluster.cluster_spec import ClusterSpec, LinkLevel
from ...spec.errors import InputError, nearest_name

LEVELS = {
    "intra_pair": "devices of one package",
    "intra_node": "devices of one node",
    "intra_rack": "the level just above the node: a rack with its own fabric, else the network",
    "inter_rack": "racks with their own fabric, or device groups",
    "inter_zone": "zones of device groups",
}


def clusters_document(name: str | None = None) -> dict[str, Any]:
    """Devices, nodes, fabrics, levels and this machine, with sources.

    Args:
        name: limit the document to this device, node, fabric or cluster.

    Raises:
        InputError: no entry has this name.
    """
    if name is not None:
        return _entry_document(name)
    return {
        "forms": [
            *("NODESxDEVICESxTYPE[@FABRIC]", "NxTYPE[@FABRIC]", "NxINSTANCE[@FABRIC]", "A+B"),
            *("NODESx(COUNTxTYPE+COUNTxTYPE[@LINK])[@FABRIC]", "local[:N]", "FILE"),
        ],
        "local": {
            "cluster": parse_cluster("local").expansion,
            "cores": core_count(),
            "memory_bytes": memory_bytes(),
        },
        "levels": [{"level": level, "joins": joins} for level, joins in LEVELS.items()],
        **_entries(list(devices().values()), list(nodes().values()), list(fabrics().values())),
        "instances": [_instance_document(item) for item in instances().values()],
        "disagreements": [asdict(item) for item in disagreements()],
    }


def _instance_document(item: Instance) -> dict[str, Any]:
    return {**asdict(item), "text": item.text}


def _entries(
    found_devices: list[Device], hosts: list[Node], links: list[Fabric]
) -> dict[str, list[dict[str, Any]]]:
    return {
        "devices": [_document(item) for item in found_devices],
        "nodes": [_document(item) for item in hosts],
        "fabrics": [_document(item, "curves") for item in links],
    }


def _document(item: Device | Node | Fabric, *without: str) -> dict[str, Any]:
    document = {f.name: getattr(item, f.name) for f in fields(item) if f.name not in without}
    plain = {name: dict(v) if isinstance(v, Mapping) else v for name, v in document.items()}
    return {**plain, "kinds": source_kinds(item.sources)}


def _entry_document(name: str) -> dict[str, Any]:
    """A catalogue entry, or the levels of a cluster."""
    key = name.casefold()
    hosts = [item for item in nodes().values() if item.name.casefold() == key]
    links = [item for item in fabrics().values() if item.name.casefold() == key]
    matching_devices: list[Device] = []
    if hosts:
        links = _fabrics_of(hosts)
    elif not links:
        matching_devices = _devices_named(name)
        hosts = [
            host
            for host in nodes().values()
            for item in matching_devices
            if item.name in host.devices
        ]
        links = _fabrics_of(hosts)
    subjects = {item.name for item in matching_devices} | {item.name for item in links}
    document: dict[str, Any] = {
        "name": name,
        **_entries(matching_devices, hosts, links),
        "disagreements": [asdict(d) for d in disagreements() if d.subject in subjects],
    }
    if not (matching_devices or hosts or links):
        parsed = _cluster_named(name)
        document["cluster"] = {"text": parsed.expansion, "levels": level_rows(parsed.cluster)}
        counted = counted_instance(name.partition("@")[0])
        document["instances"] = [] if counted is None else [_instance_document(counted[1])]
    return document


def _devices_named(name: str) -> list[Device]:
    try:
        return [device(name)]
    except InputError:
        return []


def _fabrics_of(hosts: list[Node]) -> list[Fabric]:
    names = dict.fromkeys(
        link
        for host in hosts
        for link in (host.pair_link, host.link, host.rack_link, host.network)
        if link is not None
    )
    return [fabrics()[link] for link in names]


def _cluster_named(name: str) -> ParsedCluster:
    try:
        return parse_cluster(name, "NAME")
    except InputError as error:
        entries = [*devices(), *nodes(), *fabrics(), *instances()]
        if nearest := nearest_name(name, entries):
            allowed = "a device, node, fabric or instance of plan clusters, or a cluster"
            raise InputError("NAME", name, allowed, nearest) from None
        raise error


def level_rows(cluster: ClusterSpec) -> list[dict[str, Any]]:
    """Link levels of a cluster, with the rates of a device."""
    rows = []
    for group in cluster.groups:
        inside = cluster.alone(group.name)
        rows += [_level(inside, number, group.name) for number in range(len(inside.levels))]
    if len(cluster.groups) > 1:
        joined = [cluster.joined_at(group.name) for group in cluster.groups]
        for number, level in enumerate(cluster.levels):
            rates = [link_rates(part, level).bandwidth_bytes_per_s for part in joined]
            slowest = joined[rates.index(min(rates))]
            rows.append(_level(slowest, number, _joined_text(cluster, level)))
    return rows


def _joined_text(cluster: ClusterSpec, level: LinkLevel) -> str:
    if len(cluster.levels) == 1:
        return "all groups"
    return "all zones" if level.level == "inter_zone" else "groups of a zone"


def _level(cluster: ClusterSpec, number: int, group: str) -> dict[str, Any]:
    level = cluster.levels[number]
    rates = link_rates(cluster, level)
    return {
        "device_group": group,
        "level": level.level,
        "group_size": level.group_size,
        "fabric": level.fabric,
        "bandwidth_bytes_per_s": rates.bandwidth_bytes_per_s,
        "oversubscription": level.oversubscription,
        "efficiency": rates.efficiency,
        "latency_s": rates.latency_s,
        "kinds": source_kinds(rates.fabric.sources),
    }
