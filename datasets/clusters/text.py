"""Clusters counted in text: ``16x8xH100-80GB@8x400G-IB``, ``64xH100-80GB``, ``p4de.24xlarge``.

    NODESxDEVICESxTYPE       nodes, devices in each, device (``16x8xH100-80GB``)
    NxTYPE                   N devices in whole usual nodes, or part of one (``64xH100-80GB``)
    [Nx]INSTANCE             N instances of a cloud, each a node (``4xp4de.24xlarge``)
    …@FABRIC[:oversub=K]     the network between nodes (left out: the node's usual one, assumed, or
                             the instance's)

Names are read as the catalogue reads them: left out, the form is SXM and the memory the usual
one, as assumptions. ``expansion`` is the full text, with nothing left out; parsing it gives the
same cluster. Devices of a node form the level ``intra_node``; all nodes form the level just above
it, ``intra_rack``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from ...spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, MemoryTiers
from ...spec.errors import InputError, nearest_name
from ...spec.limits import MAX_DEVICES_PER_NODE, MAX_NODES
from ...spec.report.report import Assumption
from ..catalogue.device import CPU, Device, device
from ..catalogue.fabric import fabric
from ..catalogue.instance import Instance
from ..catalogue.node import Node, largest_node, node_holding, usual_node
from .cloud_instances import counted_instance, instance_note, nearest_instances, unknown_device
from .levels import Network, node_levels, outer_levels, rack_assumption, uses_network
from .parsed_cluster import (
    GROUP,
    ParsedCluster,
    assumed_network,
    device_assumptions,
    expansion,
)

FORMS = (
    "NODESxDEVICESxTYPE, NxTYPE or NxINSTANCE of a cloud, with or without @FABRIC; "
    "1x(4xTYPE+4xTYPE), kinds in one node; local; local:N; a YAML or JSON file"
)
EXAMPLE = "8x8xH100-80GB@8x400G-IB"
NOT_USED = "not used"
DEVICE = r"(?:[a-z][\w.-]*|[0-9]{4}(?![0-9x])[\w.-]*)"
"""A device's name; GeForce cards are called by four digits too."""
COUNTED = re.compile(rf"(?:([0-9]+)x)?([0-9]+)x({DEVICE})", re.ASCII | re.IGNORECASE)
COLON = re.compile(rf"({DEVICE}):([0-9]+)", re.ASCII | re.IGNORECASE)
"""Device and count as other launchers write them."""


def counted_cluster(text: str, where: str) -> ParsedCluster:
    """The cluster of ``NODESxDEVICESxTYPE``, ``NxTYPE`` or ``NxINSTANCE``, perhaps with a network.

    Raises:
        InputError: not such a text, a count out of range, an unknown name.
    """
    head, at, network = text.partition("@")
    if (counted := counted_instance(head)) is not None:
        return _of_instances(*counted, network if at else None, text, where)
    nodes, per_node, name = _counts(head, text, where)
    try:
        catalogue_device = device(name, where=where)
    except InputError as error:
        raise unknown_device(error, nodes, name, text) from None
    if nodes is None:
        nodes, per_node, host = _fill_nodes(per_node, catalogue_device, text, where)
    else:
        nodes, per_node = _expand_racks(nodes, per_node, catalogue_device)
        host = _node_for(nodes, per_node, catalogue_device, text, where)
    return _build(
        _Request(nodes, per_node, name, catalogue_device, host, network if at else None), where
    )


def _of_instances(
    digits: str, item: Instance, network: str | None, text: str, where: str
) -> ParsedCluster:
    """The cluster of ``digits`` instances, on their own network unless another was typed."""
    nodes = _count(digits, text, where)
    if nodes > MAX_NODES:
        raise InputError(where, text, f"at most {MAX_NODES} nodes")
    kind = device(item.device)
    host = _node_for(nodes, item.devices, kind, text, where)
    own = item.network if network is None else network
    request = _Request(nodes, item.devices, item.device, kind, host, own, network is not None)
    parsed = _build(request, where)
    note = instance_note(item, parsed.expansion)
    return replace(parsed, assumptions=(*parsed.assumptions, note))


def _counts(head: str, text: str, where: str) -> tuple[int | None, int, str]:
    match = COUNTED.fullmatch(head)
    if match is None:
        raise InputError(where, text, FORMS, _nearest_form(head))
    numbers = [None if part is None else _count(part, text, where) for part in match.groups()[:2]]
    nodes, per_node = numbers
    if nodes is not None and nodes > MAX_NODES:
        raise InputError(where, text, f"at most {MAX_NODES} nodes")
    if nodes is not None and per_node is not None and per_node > MAX_DEVICES_PER_NODE:
        raise InputError(where, text, f"at most {MAX_DEVICES_PER_NODE} devices a node")
    return nodes, per_node or 0, match[3]


def _count(digits: str, text: str, where: str) -> int:
    if len(digits.lstrip("0")) > 12:
        raise InputError(where, text, f"counts of at most {MAX_NODES} nodes")
    if int(digits) < 1:
        raise InputError(where, text, "counts of at least 1", text.replace(digits, "1", 1))
    return int(digits)


def _nearest_form(head: str) -> str:
    """A valid cluster text near an invalid one.

    Without signs and spaces, with a count.
    """
    tidy = re.sub(r"[\s-]*[x*×][\s-]*", "x", head.strip().lstrip("-"), flags=re.IGNORECASE)
    tidy = COLON.sub(r"\2x\1", re.sub(r"\s+", "-", tidy))
    if COUNTED.fullmatch(tidy) or counted_instance(tidy):
        return tidy
    try:
        return f"8x{device(tidy).name}"
    except InputError:
        return nearest_instances(tidy) or EXAMPLE


def _fill_nodes(count: int, device: Device, text: str, where: str) -> tuple[int, int, Node]:
    """Whole usual nodes of ``count`` devices together, or a part of one."""
    host = usual_node(device.name)
    if host is None:
        nearest = f"local:{count}" if device.name == CPU else f"1x{count}x{device.name}"
        allowed = f"NODESxDEVICESxTYPE, for {device.name} has no usual node in the catalogue"
        raise InputError(where, text, allowed, nearest)
    size = host.devices_per_node
    if count <= size:
        return 1, count, host
    if count % size:
        lower, upper = count // size * size, (count // size + 1) * size
        allowed = f"at most {size} devices or whole {host.name} nodes of {size}"
        nearest = f"{lower}x{device.name} or {upper}x{device.name}"
        raise InputError(where, text, allowed, nearest)
    if count // size > MAX_NODES:
        raise InputError(where, text, f"at most {MAX_NODES} nodes")
    return count // size, size, host


def _expand_racks(nodes: int, per_node: int, device: Device) -> tuple[int, int]:
    """Nodes and devices in each, with whole racks expanded."""
    host = usual_node(device.name)
    if host is None or per_node != host.devices_per_rack or host.nodes_per_rack is None:
        return nodes, per_node
    return nodes * host.nodes_per_rack, host.devices_per_node


def _node_for(nodes: int, per_node: int, device: Device, text: str, where: str) -> Node:
    host = node_holding(device.name, per_node)
    if host is not None:
        return host
    largest = largest_node(device.name)
    if largest is None:
        raise InputError(where, text, f"a device with a node in the catalogue, not {device.name}")
    size = largest.devices_per_node
    needed_nodes = -(-nodes * per_node // size)
    allowed = f"at most {size} devices a node ({largest.name}), or a cluster file with rates"
    raise InputError(where, text, allowed, f"{needed_nodes}x{size}x{device.name}")


@dataclass(frozen=True, slots=True)
class _Request:
    """The parsed text.

    Counts, the device as typed and resolved, its node, the network, and whether a person gave it.
    """

    nodes: int
    per_node: int
    typed: str
    device: Device
    node: Node
    network: str | None
    network_typed: bool = True


def _build(request: _Request, where: str) -> ParsedCluster:
    group = DeviceGroup(
        name=GROUP,
        device=request.device.name,
        node=request.node.name,
        nodes=request.nodes,
        devices_per_node=request.per_node,
        memory=MemoryTiers(hbm_bytes=request.device.capacity_bytes),
    )
    host, nodes, per_node = request.node, request.nodes, request.per_node
    typed_network = read_network(request.network, where)
    network = typed_network or Network(fabric=host.network)
    levels = node_levels(host, per_node) + outer_levels(host, nodes, per_node, network)
    assumptions = []
    if uses_network(host, nodes) and typed_network is None:
        assumptions.append(assumed_network(network.fabric, host, len(levels) - 1))
    elif typed_network is not None and request.network_typed and not uses_network(host, nodes):
        why = f"{NOT_USED}: one {'node' if nodes == 1 else 'rack'} has no network"
        assumptions.append(Assumption(path="cluster.levels", value=typed_network.fabric, why=why))
    assumptions += rack_assumption(host, nodes)
    assumptions += device_assumptions(request.typed, request.device, host)
    cluster = ClusterSpec(groups=(group,), levels=tuple(levels))
    return ParsedCluster(
        cluster=cluster,
        assumptions=tuple(assumptions),
        expansion=expansion(cluster),
        network=network,
    )


def read_network(text: str | None, where: str) -> Network | None:
    """The network of ``FABRIC[:oversub=K]``; None without text.

    Raises:
        InputError: an unknown fabric or option.
    """
    if text is None:
        return None
    name, *options = text.split(":")
    fabric_name = fabric(name, where=f"{where}: fabric", scope="network").name
    oversubscription = 1.0
    for option in options:
        key, _, value = option.partition("=")
        if key.casefold() != "oversub":
            near = nearest_name(key, ["oversub"])
            raise InputError(f"{where}: {name}", option, "oversub=K", near and f"{near}=2")
        oversubscription = _oversubscription(value, f"{where}: oversub")
    return Network(fabric=fabric_name, oversubscription=oversubscription)


def _oversubscription(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= 1e6:
        nearest = f"{1 / value:g}" if 0 < value < 1 else "1"
        raise InputError(where, text, "a number of at least 1, such as 2", nearest)
    return value
