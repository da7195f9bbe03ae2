"""Degree sets of a stage's layers, and minimum cost of their changes.

Layers of one type and degree lie together, so each run of like layers follows a path over its
degrees. A change costs by the type of the layer behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise, permutations, product
from typing import NamedTuple

ChangeSeconds = Callable[[int, int, int], float]
"""Seconds of a change in front of a layer of a type, from a degree, to a degree."""


class DegreeSets(NamedTuple):
    """Degrees of each run in cheapest order, and seconds of the changes."""

    orders: tuple[tuple[int, ...], ...]
    seconds: float


def degree_sets(
    runs: Sequence[tuple[int, int]], degrees: Sequence[int], change: ChangeSeconds
) -> list[DegreeSets]:
    """Every choice of degrees for a stage, cheapest changes first."""
    choices = [list(_subsets(degrees, count)) for _, count in runs]
    types = [layer_type for layer_type, _ in runs]
    sets = [_cheapest(types, degrees_of_runs, change) for degrees_of_runs in product(*choices)]
    return sorted(sets, key=lambda item: (item.seconds, item.orders))


def _subsets(degrees: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, min(len(degrees), count) + 1):
        yield from combinations(degrees, size)


def _cheapest(
    types: Sequence[int], degrees_of_runs: Sequence[tuple[int, ...]], change: ChangeSeconds
) -> DegreeSets:
    """Cheapest path through all runs, extended by its last degree."""
    ends: dict[int, DegreeSets] = {}
    for number, (layer_type, degrees) in enumerate(zip(types, degrees_of_runs, strict=True)):
        following: dict[int, DegreeSets] = {}
        for order in permutations(degrees):
            inside = sum(change(layer_type, a, b) for a, b in pairwise(order))
            for before, path in ends.items() if number else [(order[0], DegreeSets((), 0.0))]:
                entered = change(layer_type, before, order[0])
                longer = DegreeSets((*path.orders, order), path.seconds + entered + inside)
                best = following.get(order[-1])
                if best is None or longer.seconds < best.seconds:
                    following[order[-1]] = longer
        ends = following
    return min(ends.values(), key=lambda item: (item.seconds, item.orders))
