"""Seconds of a collective over a rank group: latency and bandwidth of the links it crosses.

A ring of n ranks sends ``wire_fraction · payload`` bytes a rank (2(n-1)/n of an all-reduce's
buffer, (n-1)/n of what an all-gather makes or a reduce-scatter takes). The slowest link on the
ring sets the pace. A group with L members on a node leaves it over L devices' share of the
node's adapters, since its rings use them all, but never faster than the devices' own links.
Set-up grows with the steps: over the nodes at the network's latency, inside the node at its own.
Worked number: all-gather of 256 MiB over 8 H100 of one node: 235 MB a rank at 0.735 · 450 GB/s
and 23 us set-up: 0.73 ms.
"""

from __future__ import annotations

from ..datasets.catalogue.fabric import Regime, wire_fraction
from ..datasets.catalogue.links import LinkRates
from ..spec.groups import RankGroup
from ..spec.kernels import Collective
from .machine import Machine

MESSAGE_KINDS = frozenset({"send", "recv"})


def collective_seconds(item: Collective, machine: Machine) -> float:
    """Seconds that a collective takes when nothing disturbs it.

    Args:
        item: kind, ranks, stride and payload.
        machine: the cluster's links.
    """
    if item.ranks < 2:
        return 0.0
    kind = "send" if item.kind in MESSAGE_KINDS else item.kind
    outer = machine.level_spanning(RankGroup(item.ranks, item.stride).span)
    if kind == "send" and item.stride >= _inner_size(machine, outer):
        outer = machine.level_spanning(item.stride + 1)
    inner = _inner_level(machine, outer)
    members = _members_inside(item, inner)
    wire_bytes = item.payload_bytes * wire_fraction(kind, item.ranks)
    if inner is None or members == 1:
        ranks = item.ranks
        rate = outer.bandwidth_bytes_per_s / outer.oversubscription
        return _fastest(outer.regimes(kind, ranks), wire_bytes, rate)
    return _hierarchical(kind, wire_bytes, members, item.ranks // members, inner, outer)


def _inner_level(machine: Machine, outer: LinkRates) -> LinkRates | None:
    """The level just inside ``outer``, if there is one."""
    position = machine.levels.index(outer)
    return machine.levels[position - 1] if position else None


def _inner_size(machine: Machine, outer: LinkRates) -> int:
    inner = _inner_level(machine, outer)
    return inner.group_size if inner is not None else 1


def _members_inside(item: Collective, inner: LinkRates | None) -> int:
    """How many of the group's ranks share one group of the inner level."""
    if inner is None:
        return 1
    return max(1, min(item.ranks, inner.group_size // item.stride))


def _fastest(regimes: tuple[Regime, Regime], wire_bytes: float, rate_bytes_per_s: float) -> float:
    return min(r.setup_s + wire_bytes / (rate_bytes_per_s * r.efficiency) for r in regimes)


def _hierarchical(
    kind: str, wire_bytes: float, members: int, groups: int, inner: LinkRates, outer: LinkRates
) -> float:
    """A ring through several inner groups: both levels' set-up, the slower level's rate."""
    shared = outer.bandwidth_bytes_per_s * members / outer.oversubscription
    best = float("inf")
    for near, far in zip(inner.regimes(kind, members), outer.regimes(kind, groups), strict=True):
        rate = min(shared * far.efficiency, inner.bandwidth_bytes_per_s * near.efficiency)
        best = min(best, near.setup_s + far.setup_s + wire_bytes / rate)
    return best


def message_seconds(size_bytes: int, distance: int, machine: Machine) -> float:
    """Seconds of one message between ranks ``distance`` apart."""
    return collective_seconds(Collective("send", 2, distance, size_bytes, "fp32"), machine)
