"""Bytes that a rank sends over each link level in a step.

A collective is counted by its parts: each rank sends each other one of the group its part once
(twice in an all-reduce), however a library routes it. So recorded and priced steps compare exactly,
and a level's bytes are those that leave its inner groups. Only collectives and messages of one
device group are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

from ..cluster.cluster_spec import ClusterSpec
from ..parallel.rank_groups import RankGroup
from ..plan.plan import Stage
from .work_items import Collective


def sent_bytes(
    items: Iterable[Collective], cluster: ClusterSpec, stage: Stage, position: int
) -> dict[str, int]:
    """Bytes by link level, innermost first; levels without traffic are left out.

    Args:
        items: of a step of one rank.
        cluster: of one device group.
        stage: of the rank.
        position: of the rank among the stage's.
    """
    device = stage.devices[0].first_rank + position
    sent: dict[str, Fraction] = {level.level: Fraction(0) for level in cluster.levels}
    for item, count in Counter(items).items():
        for distance, size_bytes in _parts(item, position):
            peer = device + distance
            peer = peer if peer < cluster.device_count else device - distance
            sent[cluster.level_between(device, peer).level] += count * size_bytes
    return {level: round(size_bytes) for level, size_bytes in sent.items() if size_bytes}


def _parts(item: Collective, position: int) -> Iterator[tuple[int, Fraction]]:
    """Distances to ranks that are sent something, and its bytes."""
    if item.kind == "recv":
        return
    if item.kind == "send":
        yield item.stride, Fraction(item.payload_bytes)
        return
    group = RankGroup(item.ranks, item.stride)
    members, own = group.members(position), group.position(position)
    if item.kind == "send_recv":
        yield members[(own + 1) % item.ranks] - position, Fraction(item.payload_bytes)
        return
    times = 2 if item.kind == "all_reduce" else 1
    for member in members:
        if member != position:
            yield member - position, Fraction(times * item.payload_bytes, item.ranks)
