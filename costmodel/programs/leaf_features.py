"""Features of a leaf: loops, operations, accesses and reuse, log-scaled.

Bytes moved beyond a cache are counted as in a tiled nest: the outermost loop below which all
buffers fit decides how often each of them is read (Wolf and Lam, A Data Locality Optimizing
Algorithm, PLDI 1991, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .nest import LOOP_KINDS, OPERATIONS, Access, Leaf, Loop

CACHES_BYTES = (32e3, 512e3, 16e6)
"""Levels at which traffic is counted, whatever the device has."""
LINE_BYTES = 64.0
MOST_ACCESSES = 4
SCALE = 1 / 12
"""Brings logarithms of counts near one."""
LOOP_NAMES = tuple(f"{kind}_{use}" for use in ("free", "reduced") for kind in LOOP_KINDS)
ACCESS_NAMES = ("footprint", "moved", "reuse", "inner_stride", "writes")
NAMES = (
    *LOOP_NAMES,
    *("points", "loops", "inner_extent", "inner_kind", "inner_reduces", "second_extent"),
    *OPERATIONS,
    *("operations", "intensity"),
    *(f"traffic_{level}" for level in range(len(CACHES_BYTES))),
    *(f"{name}_{number}" for number in range(MOST_ACCESSES) for name in ACCESS_NAMES),
)


def leaf_features(leaf: Leaf) -> tuple[float, ...]:
    """The values named by :data:`NAMES`."""
    loops = [loop for loop in leaf.loops if loop.extent > 1]
    accesses = [_thinned(access, leaf.loops) for access in leaf.accesses]
    points = leaf.points
    inner, second = ([*reversed(loops), Loop(1), Loop(1)])[:2]
    moved = [points * access.value_bytes for access in accesses]
    footprints = [footprint(access, loops) for access in accesses]
    work = points * sum(leaf.operations)
    return (
        *(_log(_product(loops, name)) for name in LOOP_NAMES),
        _log(points),
        float(len(loops)) * SCALE,
        _log(inner.extent),
        LOOP_KINDS.index(inner.kind) / len(LOOP_KINDS),
        float(inner.reduces),
        _log(second.extent),
        *(_log(points * count) for count in leaf.operations),
        _log(work),
        _log(work / max(1.0, sum(footprints))),
        *(_log(traffic(accesses, loops, size)) for size in CACHES_BYTES),
        *_access_rows(accesses, footprints, moved),
    )


def footprint(access: Access, loops: Sequence[Loop]) -> float:
    """Bytes of the lines that an access touches under ``loops``, with a stride for each."""
    values, nearest = 1.0, math.inf
    for loop, stride in zip(loops, access.strides, strict=True):
        if stride:
            values *= loop.extent
            nearest = min(nearest, abs(stride))
    spread = 1.0 if nearest is math.inf else nearest
    return values * max(access.value_bytes, min(LINE_BYTES, spread * access.value_bytes))


def traffic(accesses: Sequence[Access], loops: Sequence[Loop], cache_bytes: float) -> float:
    """Bytes moved beyond a cache of that size."""
    for depth in range(len(loops) + 1):
        inside = [
            footprint(access._replace(strides=access.strides[depth:]), loops[depth:])
            for access in accesses
        ]
        if sum(inside) <= cache_bytes or depth == len(loops):
            outer = loops[:depth]
            return sum(
                size * _repeats(access.strides[:depth], outer)
                for size, access in zip(inside, accesses, strict=True)
            )
    raise AssertionError("the last depth always returns")


def _repeats(strides: Sequence[int], outer: Sequence[Loop]) -> float:
    """Iterations of ``outer`` that bring a buffer anew: not those innermost ones that reuse it."""
    last = max((n for n, stride in enumerate(strides) if stride), default=-1)
    return math.prod(loop.extent for loop in outer[: last + 1])


def _thinned(access: Access, loops: Sequence[Loop]) -> Access:
    """The access without loops of one iteration."""
    pairs = zip(access.strides, loops, strict=True)
    return access._replace(strides=tuple(stride for stride, loop in pairs if loop.extent > 1))


def _product(loops: Sequence[Loop], name: str) -> int:
    kind, use = name.split("_")
    return math.prod(x.extent for x in loops if x.kind == kind and x.reduces == (use == "reduced"))


def _access_rows(
    accesses: Sequence[Access], footprints: Sequence[float], moved: Sequence[float]
) -> list[float]:
    """The largest accesses first, padded with zeros."""
    rows = sorted(zip(footprints, moved, accesses, strict=True), key=lambda row: row[:2])[::-1]
    out: list[float] = []
    for size, bytes_moved, access in rows[:MOST_ACCESSES]:
        inner = next((abs(s) for s in reversed(access.strides[-1:])), 0)
        out += [
            _log(size),
            _log(bytes_moved),
            _log(bytes_moved / size),
            _log(inner),
            float(access.writes),
        ]
    return out + [0.0] * (MOST_ACCESSES * len(ACCESS_NAMES) - len(out))


def _log(value: float) -> float:
    return math.log1p(value) * SCALE
