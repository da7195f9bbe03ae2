"""Collective seconds over a rank group, by link latency and bandwidth.

A ring of n ranks sends ``wire_fraction · payload`` bytes per rank (2(n-1)/n of an all-reduce's
buffer, (n-1)/n of an all-gather's output or a reduce-scatter's input). With m of its ranks in a
group of a link level, it leaves over the shares of m devices, as m rings run side by side; the
slowest level sets the pace. Set-up adds up over levels, groups joined times latency. A ring sends
and receives at once, which halves the rate of a link that is not duplex.

Groups are priced at their worst position in a stage: ranks 6 to 8 cross the edge of a node of
eight, so all groups of three leave it over one device.

Gloo's reduce-scatter is an all-reduce of which a rank keeps its part (measured over 4 ranks, links
held to 12.5 MB/s, 4 MiB, PyTorch 2.13: 0.533 and 0.528 s).

An all-to-all and a ring's step leave over each device's share alone: no rank forwards.

Worked number: all-gather of 256 MiB over 8 H100 of one node: 235 MB a rank at 0.735 · 450 GB/s and
23 us set-up: 0.73 ms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...datasets.catalogue.fabric import wire_fraction
from ...datasets.catalogue.links import LinkRates
from ...spec.report.work_items import Collective
from .machine import Machine

MESSAGE_KINDS = frozenset({"send", "recv"})
RING_STEP = "send_recv"
EXCHANGE = "all_to_all"
REGIMES = (0, 1)
"""Small messages and bulk: a library picks the faster protocol."""


class CrossedLevel(NamedTuple):
    """A level crossed by a collective: groups joined, ranks of each."""

    level: LinkRates
    groups: int
    members: int


def collective_seconds(item: Collective, machine: Machine) -> float:
    """Seconds of an undisturbed collective."""
    if item.ranks < 2:
        return 0.0
    if item.kind in MESSAGE_KINDS:
        return message_seconds(item.payload_bytes, machine.level_between(0, item.stride))
    if item.kind == RING_STEP:
        return _ring_step_seconds(item, machine)
    if item.kind == EXCHANGE:
        return _exchange_seconds(item, machine)
    crossed = crossed_levels(item.ranks, item.stride, machine)
    kind = _sent_as(item.kind, machine, crossed[-1].level)
    wire_bytes = item.payload_bytes * wire_fraction(kind, item.ranks)
    return _ring_seconds(kind, wire_bytes, crossed)


def _sent_as(kind: str, machine: Machine, outermost: LinkRates) -> str:
    """What a collective is on the wire; curves of a fabric are of the collective itself."""
    if kind != "reduce_scatter" or not machine.is_cpu:
        return kind
    return kind if any(kind == curve for curve, _ in outermost.fabric.curves) else "all_reduce"


def outermost_level(item: Collective, machine: Machine) -> LinkRates:
    """Outermost level that a collective or message of several ranks crosses."""
    if item.kind in MESSAGE_KINDS:
        return machine.level_between(0, item.stride)
    return crossed_levels(item.ranks, item.stride, machine)[-1].level


def message_seconds(size_bytes: int, level: LinkRates) -> float:
    """Seconds of one message between two devices over a link level."""
    wire_bytes = size_bytes * wire_fraction("send", 2)
    rate = level.bandwidth_bytes_per_s / level.oversubscription
    return min(r.setup_s + wire_bytes / (rate * r.efficiency) for r in level.regimes("send", 2))


def _ring_step_seconds(item: Collective, machine: Machine) -> float:
    """Ring step: ranks send to the next and receive at once.

    The slowest link sets the pace; each device sends over its own share, at half the rate without
    duplex.
    """
    crossed = crossed_levels(item.ranks, item.stride, machine)
    return max(
        message_seconds(item.payload_bytes * (1 if c.level.duplex else 2), c.level) for c in crossed
    )


def _exchange_seconds(item: Collective, machine: Machine) -> float:
    """All-to-all: every rank sends equal parts of its buffer directly.

    The part for other groups of the level below crosses a level, over the device's own share.
    Levels carry their parts at once.
    """
    crossed = crossed_levels(item.ranks, item.stride, machine)
    fastest_s = math.inf
    for regime in REGIMES:
        setup_s = slowest_s = 0.0
        for level, groups, members in crossed:
            protocol = level.regimes(item.kind, groups)[regime]
            share = level.bandwidth_bytes_per_s / level.oversubscription
            share *= protocol.efficiency * (1.0 if level.duplex else 0.5)
            setup_s += protocol.setup_s
            joined_ranks = min(groups * members, item.ranks)
            sent_bytes = crossing_bytes(item, members, joined_ranks)
            sent_bytes *= shared_load(item, members, level, machine)
            slowest_s = max(slowest_s, sent_bytes / share)
        fastest_s = min(fastest_s, setup_s + slowest_s)
    return fastest_s


def crossing_bytes(item: Collective, members: int, inside: int) -> float:
    """Bytes per rank over a level joining groups of ``members`` to ``inside``.

    A token with ``copies`` rows, for evenly spread experts, travels once to each of the level's
    groups with any of them, and tokens from outside are passed on over it (DeepEP,
    csrc/kernels/internode.cu: tokens go once to a node, from there to the ranks). A group holds one
    with a probability of 1 - (1 - members / ranks)^copies.

    Worked number: 8 copies over 32 ranks in nodes of 8: 2.7 instead of 6 tokens leave a node.
    """
    others = inside - members
    if item.copies == 1:
        return item.payload_bytes * others / item.ranks
    reached = 1 - (1 - members / item.ranks) ** item.copies
    tokens = others / members * reached * (item.ranks / inside)
    return item.payload_bytes / item.copies * tokens


def shared_load(item: Collective, members: int, level: LinkRates, machine: Machine) -> float:
    """Rows over a level's adapter, over those of the fullest rank alone; 1 where loads are even.

    Devices that share an adapter of their node have its rate together, so that the fullest of such
    groups sets the pace; with an adapter each it is the fullest rank.

    Worked number: two ranks behind one adapter with 2.2 and 0.86 times the mean: 1.53 / 2.2 = 0.7.
    """
    adapters = level.fabric.adapters
    if not item.over or members == 1 or not adapters:
        return 1.0
    sharing = machine.cluster.groups[0].devices_per_node // adapters // item.stride
    together = math.gcd(members, max(1, sharing))
    over = {1: 1.0, **dict(item.over)}
    return over[item.ranks // together] / over[item.ranks]


def crossed_levels(ranks: int, stride: int, machine: Machine) -> list[CrossedLevel]:
    """Levels crossed by a group of ``ranks``, ``stride`` apart, innermost first."""
    crossed = []
    inside = 1
    for level in machine.levels:
        is_outermost = level is machine.levels[-1]
        members = ranks if is_outermost else members_inside(ranks, stride, level.group_size)
        if members > inside:
            crossed.append(CrossedLevel(level, math.ceil(members / inside), inside))
            inside = members
        if members == ranks:
            break
    return crossed


def members_inside(ranks: int, stride: int, group_size: int) -> int:
    """Ranks sharing a level's group, at the worst position in a stage.

    Groups tile a stage in blocks of ``ranks · stride``. Nested blocks hold all that fit; else some
    straddle an edge with only the greatest common divisor on one side.
    """
    if group_size % stride:
        return 1
    return math.gcd(ranks, group_size // stride)


def _ring_seconds(kind: str, wire_bytes: float, crossed: list[CrossedLevel]) -> float:
    fastest_s = math.inf
    for regime in REGIMES:
        setup_s, rate = 0.0, math.inf
        for level, groups, members in crossed:
            protocol = level.regimes(kind, groups)[regime]
            share = level.bandwidth_bytes_per_s / level.oversubscription
            share *= protocol.efficiency * (1.0 if level.duplex else 0.5)
            setup_s += protocol.setup_s
            rate = min(rate, share * members)
        fastest_s = min(fastest_s, setup_s + wire_bytes / rate)
    return fastest_s
