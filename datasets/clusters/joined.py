"""Device groups joined with ``+``: ``2x8xH100-80GB+4x8xA100-80GB@100G-ETH``.

    GROUP+GROUP[+GROUP …][+@FABRIC[:oversub=K]]

Each GROUP is a counted cluster (:mod:`text`) with its own levels and, after its ``@``, its own
network. One ``inter_rack`` level joins the groups: over the fabric of the last part where that is
``@FABRIC``, else over the slowest of the groups' networks, an assumption. Groups are called by
their devices' families: ``h100``, ``a100``, ``a100-2``.

Only typed keys (:mod:`file`) put groups in several zones: the ``inter_rack`` level then joins
those of a zone, and an ``inter_zone`` level the zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, LinkLevel
from ...spec.errors import InputError
from ...spec.report.report import Assumption
from ...spec.rules.input_rules import cluster_problems
from ..catalogue.device import CPU, device
from ..catalogue.fabric import fabric
from .levels import Network
from .parsed_cluster import MAX_GROUPS, ParsedCluster, expansion
from .text import NOT_USED, counted_cluster, read_network

EXAMPLE = "2x8xH100-80GB+4x8xA100-80GB"


def joined_text(text: str, where: str) -> ParsedCluster:
    """The cluster of a text with ``+``.

    Raises:
        InputError: an empty part, a part that is no counted cluster, too many.
    """
    *parts, last = [part.strip() for part in text.split("+")]
    join = read_network(last[1:], where) if last.startswith("@") else None
    if join is None:
        parts.append(last)
    if len(parts) < 2 or not all(parts):
        allowed = f"counted groups on both sides of each +, such as {EXAMPLE}"
        raise InputError(where, text, allowed, EXAMPLE)
    return join_groups([counted_cluster(part, where) for part in parts], join, where)


def join_groups(
    parts: Sequence[ParsedCluster],
    join: Network | None,
    where: str,
    text: str | None = None,
    zones: LinkLevel | None = None,
) -> ParsedCluster:
    """One cluster of the groups of ``parts``.

    Args:
        parts: clusters of one group each.
        join: the network that joins them; the slowest of their own if None.
        where: name of the cluster in an error.
        text: its full text, if that is no text with ``+``.
        zones: the level that joins the zones of the groups, where there are several; over the
            network that joins groups if None.

    Raises:
        InputError: too many groups, cores of this machine among them, or some without a zone.
    """
    if len(parts) > MAX_GROUPS:
        raise InputError(where, f"{len(parts)} groups", f"at most {MAX_GROUPS}", MAX_GROUPS)
    groups = _named([part.cluster for part in parts], where)
    notes = [
        _of_group(note, number)
        for number, part in enumerate(parts)
        for note in part.assumptions
        if not note.why.startswith(NOT_USED)  # joined groups do use it
    ]
    networks = [part.network for part in parts if part.network is not None]
    network = join or min(networks, key=lambda item: _share_bytes_per_s(item, parts))
    bare = ClusterSpec(groups=tuple(groups), levels=())
    levels, assumed = _joining_levels(bare, network, join is None, zones)
    cluster = replace(bare, levels=levels)
    for problem in cluster_problems(cluster):
        raise problem.error(where)
    full_text = expansion(cluster) if text is None else text
    return ParsedCluster(
        cluster=cluster, assumptions=(*notes, *assumed), expansion=full_text, network=network
    )


def _joining_levels(
    bare: ClusterSpec, network: Network, slowest: bool, zones: LinkLevel | None
) -> tuple[tuple[LinkLevel, ...], list[Assumption]]:
    """The levels that join the groups of ``bare``, and the assumptions made."""
    notes = []
    level = LinkLevel(
        level="inter_rack",
        group_size=bare.joined_counts[0],
        fabric=network.fabric,
        oversubscription=network.oversubscription,
    )
    if slowest and len(bare.zones) < len(bare.groups):
        why = "no fabric given between the groups; the slowest of their own networks"
        path = "cluster.levels.0.fabric"
        notes.append(Assumption(path=path, value=network.fabric, why=why))
    if len(bare.zones) == 1:
        return (level,), notes
    if zones is None:
        why = "no inter_zone_fabric given between the zones; as between groups of one zone"
        path = "cluster.levels.1.fabric"
        notes.append(Assumption(path=path, value=network.fabric, why=why))
    between = replace(zones or level, level="inter_zone", group_size=bare.device_count)
    return (level, between), notes


def _named(clusters: Sequence[ClusterSpec], where: str) -> list[DeviceGroup]:
    """Each cluster's group, uniquely named, with the cluster's levels."""
    groups: list[DeviceGroup] = []
    for cluster in clusters:
        group = cluster.groups[0]
        if group.device == CPU:
            allowed = "groups of accelerators; cores of this machine are a cluster of their own"
            raise InputError(where, f"a group of {CPU}", allowed)
        family = device(group.device).family.lower()
        same_family = sum(device(other.device).family.lower() == family for other in groups)
        name = f"{family}-{same_family + 1}" if same_family else family
        groups.append(replace(group, name=name, levels=cluster.levels))
    return groups


def _share_bytes_per_s(network: Network, parts: Sequence[ParsedCluster]) -> float:
    link = fabric(network.fabric)
    shares = [
        link.device_bandwidth_bytes_per_s(
            group.devices_per_node, device(group.device).host_link_bytes_per_s
        )
        for group in (part.cluster.groups[0] for part in parts)
    ]
    return min(shares) / network.oversubscription


def _of_group(note: Assumption, number: int) -> Assumption:
    path = note.path.removeprefix("cluster.groups.0.")
    if path == note.path:
        path = note.path.removeprefix("cluster.")
    return replace(note, path=f"cluster.groups.{number}.{path}")
