"""Sharding over link levels: ``hsdp:intra_node`` and ``1/1/intra_node`` as degrees.

A level means the ranks of one of its groups with the same slice of the weights: the group's
devices over the weight-splitting ranks, which are innermost. ``hsdp`` and ``hpz`` alone shard
inside the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations_with_replacement

from ...spec.cluster.cluster_spec import LEVEL_ORDER, ClusterSpec
from ...spec.errors import InputError, nearest_name
from ...spec.numbers import divisors
from ...spec.strategy import Sharding

USUAL_LEVEL = "intra_node"
LEVEL_HEADS = ("hsdp", "hpz")
SECOND_COPY = "+hpz"
"""Between degrees and that of a second copy, which may follow as ``:LEVEL`` or ``:DEGREE``."""
JUST_ABOVE_THE_NODE = "inter_node"
EVERY_LEVEL = (*LEVEL_ORDER, JUST_ABOVE_THE_NODE)


def group_sizes(cluster: ClusterSpec) -> dict[str, int]:
    """Devices in a group of each link level, by name.

    With several device groups: common levels, at their smallest.
    """
    inside = [cluster.alone(group.name).levels for group in cluster.groups]
    by_group = [{level.level: level.group_size for level in levels} for levels in inside]
    shared = [name for name in LEVEL_ORDER if all(name in group for group in by_group)]
    sizes: dict[str, int] = {name: min(group[name] for group in by_group) for name in shared}
    above = [n for n in LEVEL_ORDER[LEVEL_ORDER.index(USUAL_LEVEL) + 1 :] if n in sizes]
    return {**sizes, JUST_ABOVE_THE_NODE: sizes[above[0]]} if above else sizes


def level_degrees(text: str, sizes: Mapping[str, int], tp: int, dp: int, field: str) -> str:
    """Replace levels in ``text`` by degrees; other texts stay unchanged.

    Args:
        text: a sharding level as typed.
        sizes: devices in a group of each link level, as ``group_sizes``.
        tp: ranks that split weights: the tensor-parallel degree, 1 with Ulysses.
        dp: ranks with the same slice of the weights, the maximum split of a state.
        field: named in errors.

    Raises:
        InputError: a level that is not among ``sizes``.
    """
    first, beside, second = text.partition(SECOND_COPY)
    if beside:
        second = level_degrees(f"hpz{second}", sizes, tp, dp, field)
        return f"{level_degrees(first, sizes, tp, dp, field)}+{second}"
    if text in LEVEL_HEADS:
        text = f"{text}:{USUAL_LEVEL}"
    head, colon, rest = text.rpartition(":")
    parts = rest.split("/")
    if (colon and head not in LEVEL_HEADS) or not any("_" in part for part in parts):
        return text
    for name in parts:
        if "_" in name and name not in sizes:
            raise InputError(field, text, ", ".join(sizes), nearest_name(name, sizes))
    degrees = [str(min(dp, max(1, sizes[p] // tp))) if p in sizes else p for p in parts]
    return head + colon + "/".join(degrees)


def with_degrees(text: str, cluster: ClusterSpec, tp: int, dp: int, field: str = "--shard") -> str:
    """:func:`level_degrees` with the link levels of a cluster.

    Args:
        text: a sharding level as typed.
        cluster: with the link levels.
        tp: as :func:`level_degrees`.
        dp: as :func:`level_degrees`.
        field: named in errors.

    Raises:
        InputError: a level that the cluster does not have.
    """
    return level_degrees(text, group_sizes(cluster), tp, dp, field)


def shardings(ranks: int, inner: Iterable[int] = ()) -> list[Sharding]:
    """Sharding levels over ``ranks`` ranks with the same weights, and nested degrees.

    Levels are zero0 to zero3 and every hsdp degree; of parameters, their second copy, gradients and
    optimizer each may be whole, or over ``inner`` degrees, or over all ranks, nested.

    Args:
        ranks: that hold the same slice of the weights.
        inner: degrees of the link levels, as :func:`inner_degrees`; none for levels alone.
    """
    if ranks == 1:
        return [Sharding()]
    levels = ["zero0", "zero1", "zero2", "zero3"]
    levels += [f"hsdp:{d}" for d in divisors(ranks)[1:-1]]
    plain = [Sharding.from_text(level, ranks) for level in levels]
    return list(dict.fromkeys((*plain, *_nested(ranks, inner))))


def inner_degrees(sizes: Mapping[str, int], split: int, ranks: int) -> tuple[int, ...]:
    """Degrees over the ranks of one group of a link level, of ``ranks`` with the same weights.

    Args:
        sizes: devices in a group of each link level, as ``group_sizes``.
        split: ranks that split weights, which are innermost.
        ranks: that hold the same slice of the weights.
    """
    inside = {size // split for size in sizes.values() if size % split == 0}
    return tuple(sorted(degree for degree in inside if 1 < degree < ranks and ranks % degree == 0))


def _nested(ranks: int, inner: Iterable[int]) -> Iterator[Sharding]:
    inner = tuple(inner)
    if not inner:
        return
    for degrees in combinations_with_replacement((1, *inner, ranks), 3):
        p, g, o = degrees
        if g % p or o % g:
            continue
        for second in (1, *(d for d in inner if d < p and p % d == 0)):
            yield Sharding(parameters=p, secondary_parameters=second, gradients=g, optimizer=o)
