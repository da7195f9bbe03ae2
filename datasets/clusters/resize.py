"""Change a cluster's number of nodes, of devices in each, or their kind.

Figures typed on a level (rates, latency, oversubscription, the nodes of a rack) stay with the
level; new levels are those that the catalogue gives such nodes, with an assumption where their
network was never named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ...spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, LinkLevel, MemoryTiers
from ...spec.errors import InputError
from ...spec.limits import MAX_NODES
from ...spec.report.report import Assumption
from ...spec.rules.input_rules import cluster_problems
from ..catalogue.device import CPU, Device, device
from ..catalogue.fabric import fabric
from ..catalogue.node import Node, largest_node, node, node_holding, usual_node
from .joined import join_groups
from .levels import Network, node_levels, outer_levels, rack_assumption
from .parsed_cluster import (
    ParsedCluster,
    assumed_network,
    device_assumptions,
    expansion,
    is_one_node,
)


class Resized(NamedTuple):
    """A resized cluster, assumptions, and old group name -> new name."""

    cluster: ClusterSpec
    notes: tuple[Assumption, ...]
    names: Mapping[str, str]


def resize(cluster: ClusterSpec, name: str, nodes: int, per_node: int, where: str) -> Resized:
    """The cluster with ``nodes`` nodes of ``per_node`` devices in its group ``name``.

    Raises:
        InputError: more than a node holds, or cores of this machine in several nodes.
    """
    if nodes > 1 and is_one_node(cluster):
        raise InputError(where, nodes, "1, the node that kinds of device share", 1)
    group_cluster, notes = _resize_group(cluster.alone(name), nodes, per_node, where)
    return _with_group(cluster, name, group_cluster, notes)


def exchange(cluster: ClusterSpec, name: str, typed: str, where: str) -> Resized:
    """The cluster with as many devices of another kind in its group ``name``.

    They stand in their usual nodes, whole ones where the old nodes are. Links of nodes and racks,
    and the network, become the usual ones unless a person typed others.

    Raises:
        InputError: no such device, cores, or a number that makes no whole nodes.
    """
    new, alone = device(typed, where=where), cluster.alone(name)
    group = alone.groups[0]
    if CPU in (new.name, group.device) or is_one_node(cluster):
        allowed = "an accelerator in place of one, in nodes that hold one kind"
        raise InputError(where, typed, allowed)
    nodes, per_node, host = _seats(group, new, where)
    typed_levels = _typed_levels(alone)
    inner = [level for level in alone.levels if fabric(level.fabric).scope != "network"]
    networks = [level for level in alone.levels if level not in inner]
    kept = networks if any(level.level in typed_levels for level in networks) else []
    base = replace(alone, levels=(*inner[:1], *kept))
    levels, notes = _levels(base, host, nodes, per_node)
    memory = MemoryTiers(
        hbm_bytes=new.capacity_bytes,
        host_bytes=group.memory.host_bytes,
        nvme_bytes=group.memory.nvme_bytes,
    )
    changed = replace(
        group,
        device=new.name,
        node=host.name,
        nodes=nodes,
        devices_per_node=per_node,
        memory=memory,
    )
    exchanged = replace(
        alone,
        groups=(changed,),
        levels=tuple(_as_typed(level, typed_levels.get(level.level)) for level in levels),
    )
    notes += device_assumptions(typed, new, host)
    if group.memory.hbm_bytes != device(group.device).capacity_bytes:
        why = f"all that a {new.name} has; the cap was on {group.device}"
        path = "cluster.groups.0.memory.hbm_bytes"
        notes.append(Assumption(path=path, value=new.capacity_bytes, why=why))
    return _with_group(cluster, name, exchanged, tuple(notes))


def _seats(group: DeviceGroup, new: Device, where: str) -> tuple[int, int, Node]:
    """Nodes, devices in each, and the node, for as many devices of another kind."""
    largest = usual_node(new.name) or largest_node(new.name)
    if largest is None:
        raise InputError(where, new.name, "a device with a node in the catalogue")
    count, size = group.device_count, largest.devices_per_node
    fills_nodes = group.devices_per_node == node(group.node).devices_per_node
    if group.devices_per_node <= size and not (fills_nodes and count % size == 0):
        host = node_holding(new.name, group.devices_per_node) or largest
        return group.nodes, group.devices_per_node, host
    if count <= size:
        return 1, count, largest
    if count % size:
        allowed = f"a number of devices in whole {largest.name} nodes of {size}, not {count}"
        raise InputError(where, new.name, allowed, f"devices={count // size * size} beside it")
    return count // size, size, largest


def _typed_levels(cluster: ClusterSpec) -> dict[str, LinkLevel]:
    """Levels of a one-group cluster that are not the usual ones of its nodes."""
    group = cluster.groups[0]
    host, sizes = node(group.node), (group.nodes, group.devices_per_node)
    usual = node_levels(host, sizes[1])
    usual += outer_levels(host, *sizes, Network(fabric=host.network))
    known = {level.level: level for level in usual}
    return {
        level.level: level
        for level in cluster.levels
        if level.level not in known
        or replace(level, group_size=1) != replace(known[level.level], group_size=1)
    }


def _with_group(
    cluster: ClusterSpec,
    name: str,
    group_cluster: ClusterSpec,
    notes: tuple[Assumption, ...],
) -> Resized:
    """The cluster with another one in place of its group ``name``."""
    names = {group.name: group.name for group in cluster.groups}
    if len(cluster.groups) == 1:
        return Resized(group_cluster, notes, names)
    resized = replace(group_cluster.groups[0], levels=group_cluster.levels)
    groups = tuple(resized if group.name == name else group for group in cluster.groups)
    grown = replace(cluster, groups=groups)
    counts = zip(cluster.levels, grown.joined_counts, strict=True)
    joined = tuple(replace(level, group_size=count) for level, count in counts)
    return Resized(replace(grown, levels=joined), notes, names)


def _resize_group(
    cluster: ClusterSpec, nodes: int, per_node: int, where: str
) -> tuple[ClusterSpec, tuple[Assumption, ...]]:
    group = cluster.groups[0]
    if nodes > MAX_NODES:
        raise InputError(where, nodes, f"at most {MAX_NODES} nodes", MAX_NODES)
    if group.device == CPU and nodes > 1:
        raise InputError(where, nodes, "one node: cores of this machine", 1)
    host = _host(node(group.node), group.device, per_node, where)
    group = replace(group, node=host.name, nodes=nodes, devices_per_node=per_node)
    old_levels = {level.level: level for level in cluster.levels}
    new_levels, notes = _levels(cluster, host, nodes, per_node)
    levels = tuple(_as_typed(level, old_levels.get(level.level)) for level in new_levels)
    resized = replace(cluster, groups=(group,), levels=levels)
    for problem in cluster_problems(resized):
        raise problem.error(where)
    return resized, tuple(notes)


def _host(host: Node, name: str, per_node: int, where: str) -> Node:
    """The node that holds ``per_node`` devices, the same one if it can."""
    if per_node <= host.devices_per_node or name == CPU:
        return host
    other, largest = node_holding(name, per_node), largest_node(name)
    if other is None:
        most = host.devices_per_node if largest is None else largest.devices_per_node
        raise InputError(where, per_node, f"at most {most} {name} in a node", most)
    return other


def _as_typed(level: LinkLevel, old: LinkLevel | None) -> LinkLevel:
    if old is None or fabric(old.fabric).scope != fabric(level.fabric).scope:
        return level
    return replace(old, group_size=level.group_size)


def _levels(
    cluster: ClusterSpec, host: Node, nodes: int, per_node: int
) -> tuple[list[LinkLevel], list[Assumption]]:
    inner = node_levels(host, per_node)
    if nodes == 1:
        return inner, []
    in_rack = _nodes_in_rack(cluster, host)
    network, is_named = _network(cluster, host)
    devices = nodes * per_node
    middle = host.rack_link or network.fabric
    levels = [*inner, LinkLevel(level="intra_rack", group_size=devices, fabric=middle)]
    racks = 1 if in_rack is None else -(-nodes // in_rack)
    if in_rack is not None and racks > 1:
        size = in_rack * per_node
        top = LinkLevel(level="inter_rack", group_size=racks * size, fabric=network.fabric)
        levels = [*inner, replace(levels[-1], group_size=size), top]
    networked = fabric(levels[-1].fabric).scope == "network"
    if networked:
        levels[-1] = replace(levels[-1], oversubscription=network.oversubscription)
    notes = rack_assumption(host, nodes)
    if networked and not is_named:
        notes.append(assumed_network(network.fabric, host, len(levels) - 1))
    return levels, notes


def _nodes_in_rack(cluster: ClusterSpec, host: Node) -> int | None:
    sizes = {level.level: level.group_size for level in cluster.levels}
    if {"intra_rack", "inter_rack"} <= set(sizes):
        return max(1, sizes["intra_rack"] // cluster.groups[0].devices_per_node)
    return host.nodes_per_rack if host.rack_link is not None else None


def _network(cluster: ClusterSpec, host: Node) -> tuple[Network, bool]:
    outer = cluster.levels[-1]
    if fabric(outer.fabric).scope != "network":
        return Network(fabric=host.network), False
    return Network(fabric=outer.fabric, oversubscription=outer.oversubscription), True


def enlarge(cluster: ClusterSpec, added: ParsedCluster, where: str) -> Resized:
    """The cluster with the groups of another one beside its own.

    Nodes of an existing kind, on the same network, become nodes of that group, with as much memory
    as its devices have; others become groups of their own.

    Raises:
        InputError: too many groups, cores of this machine among them, or a node of several kinds.
    """
    if is_one_node(cluster) or is_one_node(added.cluster):
        allowed = "clusters whose nodes hold one kind of device each"
        raise InputError(where, "a node of several kinds", allowed)
    notes = [replace(note, path=f"added {note.path}") for note in added.assumptions]
    assumed = any(note.path.endswith(".fabric") for note in added.assumptions)
    names = {group.name: group.name for group in cluster.groups}
    for group in added.cluster.groups:
        part = added.cluster.alone(group.name)
        matching = [name for name in names.values() if _can_extend(cluster, name, part, assumed)]
        if matching:
            target = cluster.group(matching[0])
            nodes, per_node = target.nodes + group.nodes, target.devices_per_node
            cluster, added_notes, _ = resize(cluster, target.name, nodes, per_node, where)
            notes += added_notes
            if target.zone and not group.zone:
                why = "no zone given; that of the first group of its kind"
                notes.append(Assumption(path="added cluster.zone", value=target.zone, why=why))
            if target.memory != group.memory:
                why = "the added devices are given what those of the plan have"
                value = target.memory.hbm_bytes
                notes.append(Assumption(path="added cluster.memory", value=value, why=why))
        else:
            cluster, added_notes, renamed = _append_group(cluster, part, added.network, where)
            names = {old: renamed[new] for old, new in names.items()}
            notes += added_notes
    return Resized(cluster, tuple(notes), names)


def _can_extend(cluster: ClusterSpec, name: str, added: ClusterSpec, assumed: bool) -> bool:
    """True if added nodes match a group's kind, zone and network.

    A network or zone only ``assumed`` for them counts as equal.
    """
    group, new_group = cluster.group(name), added.groups[0]
    if new_group.zone not in ("", group.zone):
        return False
    kinds = [(g.device, g.node, g.devices_per_node) for g in (group, new_group)]
    outer = [c.levels[-1].fabric for c in (cluster.alone(name), added)]
    networks = [name for name in outer if fabric(name).scope == "network"]
    return kinds[0] == kinds[1] and (assumed or len(set(networks)) <= 1)


def _append_group(
    cluster: ClusterSpec, part: ClusterSpec, network: Network | None, where: str
) -> Resized:
    """A cluster with one more group.

    The levels that joined its groups join all.
    """
    parts = [
        ParsedCluster(
            cluster=alone, assumptions=(), expansion=expansion(alone), network=own_network
        )
        for alone, own_network in (
            *((cluster.alone(g.name), _own_network(cluster.alone(g.name))) for g in cluster.groups),
            (part, network or _own_network(part)),
        )
    ]
    several, level = len(cluster.groups) > 1, cluster.levels[0]
    join = Network(fabric=level.fabric, oversubscription=level.oversubscription)
    zones = cluster.levels[1] if several and len(cluster.zones) > 1 else None
    joined = join_groups(parts, join if several else None, where, zones=zones)
    names = {
        old.name: new.name for old, new in zip(cluster.groups, joined.cluster.groups, strict=False)
    }
    return Resized(joined.cluster, joined.assumptions, names)


def _own_network(cluster: ClusterSpec) -> Network:
    return _network(cluster, node(cluster.groups[0].node))[0]
