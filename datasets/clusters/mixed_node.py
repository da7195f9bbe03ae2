"""Several kinds of device in one node: ``1x(4xA100-80GB+4xV100-32GB)``.

    [NODESx](COUNTxTYPE+COUNTxTYPE[+COUNTxTYPE …][@LINK])[@FABRIC[:oversub=K]]

Each kind is a device group with the links of its own usual node. Between the kinds lies the node's
link: LINK, a fabric of scope ``node``, or the slowest PCI Express of the kinds, an assumption, for
NVLink joins no two generations. In several nodes the kinds communicate over the network between
nodes, FABRIC or the slowest of their usual ones, also inside a node: an assumption that is slow.

Limits: prices by node count a node once for each kind.
"""

from __future__ import annotations

import re

from ...spec.errors import InputError
from ...spec.report.report import Assumption
from ..catalogue.device import device
from ..catalogue.fabric import Fabric, fabric
from ..catalogue.node import node
from .joined import join_groups
from .levels import Network
from .parsed_cluster import ParsedCluster
from .text import DEVICE, counted_cluster, read_network

EXAMPLE = "1x(4xA100-80GB+4xV100-32GB)"
MIXED = re.compile(r"(?:([0-9]{1,9})x)?\(([^()@]+)(?:@([^()@]+))?\)(?:@([^()@]+))?", re.ASCII)
KIND = re.compile(rf"[0-9]+x{DEVICE}", re.ASCII | re.IGNORECASE)
BUSES = ("PCIe3", "PCIe4", "PCIe5")


def mixed_node_text(text: str, where: str) -> ParsedCluster:
    """The cluster of a text with kinds of device in parentheses.

    Raises:
        InputError: another form, one kind only, a link that is none, or LINK with several nodes.
    """
    match = MIXED.fullmatch(text)
    kinds = [] if match is None else [kind.strip() for kind in match[2].split("+")]
    if match is None or len(kinds) < 2 or not all(map(KIND.fullmatch, kinds)):
        allowed = "NODESx(COUNTxTYPE+COUNTxTYPE[@LINK])[@FABRIC], for kinds of device in one node"
        raise InputError(where, text, allowed, EXAMPLE)
    nodes, link, network = int(match[1] or 1), match[3], match[4]
    at = f"@{network}" if network is not None and nodes > 1 else ""
    parts = [counted_cluster(f"{nodes}x{kind}{at}", where) for kind in kinds]
    if nodes == 1:
        return _one_node(parts, link, network, where)
    if link is not None:
        allowed = "no link in parentheses: in several nodes, kinds meet over the network"
        raise InputError(where, link, allowed, f"1x({'+'.join(kinds)}@{link})")
    joined = join_groups(parts, read_network(network, where), where)
    why = "kinds of several nodes meet over the network between nodes, in a node too"
    return _with_note(joined, joined.cluster.levels[0].fabric, why)


def _one_node(
    parts: list[ParsedCluster], link: str | None, network: str | None, where: str
) -> ParsedCluster:
    if network is not None:
        allowed = "no network: one node has none; the link between kinds stands in parentheses"
        raise InputError(where, f"@{network}", allowed)
    if link is not None:
        name = fabric(link, where=f"{where}: link", scope="node").name
        return join_groups(parts, Network(fabric=name), where)
    name = _slowest_bus(parts).name
    joined = join_groups(parts, Network(fabric=name), where)
    why = "no link given between the kinds of the node; the slowest of their PCI Express links"
    return _with_note(joined, name, why)


def _with_note(parsed: ParsedCluster, link: str, why: str) -> ParsedCluster:
    note = Assumption(path="cluster.levels.0.fabric", value=link, why=why)
    kept = [item for item in parsed.assumptions if item.path != note.path]
    return ParsedCluster(
        cluster=parsed.cluster,
        assumptions=(*kept, note),
        expansion=parsed.expansion,
        network=parsed.network,
    )


def _slowest_bus(parts: list[ParsedCluster]) -> Fabric:
    groups = [part.cluster.groups[0] for part in parts]
    inside = [fabric(node(group.node).link) for group in groups]
    buses = [link for link in inside if link.technology == "pcie"]
    buses += [_bus(device(group.device).host_link_bytes_per_s) for group in groups]
    return min(buses, key=lambda link: link.bandwidth_bytes_per_s * link.efficiency)


def _bus(bytes_per_s: float) -> Fabric:
    """The fastest PCI Express that a device's link to its host reaches."""
    known = [fabric(name) for name in BUSES]
    reached = [link for link in known if link.bandwidth_bytes_per_s <= bytes_per_s * 1.01]
    return reached[-1] if reached else known[0]
