"""Which degrees the layers of a stage use, and the least that changes between them cost.

Layers of a kind that share a degree lie together, so a stage passes each run of like layers along
a path over the degrees that the run uses. A change costs by the kind of layer behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise, permutations, product
from typing import NamedTuple

ChangeSeconds = Callable[[int, int, int], float]
"""Seconds of a change in front of a layer of a type, from a degree, to a degree."""


class DegreeSets(NamedTuple):
    """The degrees of each run of layers in their cheapest order, and what the changes cost."""

    orders: tuple[tuple[int, ...], ...]
    seconds: float


def degree_sets(
    runs: Sequence[tuple[int, int]], degrees: Sequence[int], change: ChangeSeconds
) -> list[DegreeSets]:
    """Every choice of degrees for a stage, the cheapest changes first.

    Args:
        runs: (layer type, layers) along the stage.
        degrees: what a layer may have.
        change: seconds of a change.
    """
    choices = [list(_subsets(degrees, count)) for _, count in runs]
    found = [_cheapest([kind for kind, _ in runs], chosen, change) for chosen in product(*choices)]
    return sorted(found, key=lambda item: (item.seconds, item.orders))


def _subsets(degrees: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, min(len(degrees), count) + 1):
        yield from combinations(degrees, size)


def _cheapest(
    kinds: Sequence[int], chosen: Sequence[tuple[int, ...]], change: ChangeSeconds
) -> DegreeSets:
    """The cheapest path through all runs, by the degree that it ends with."""
    ends: dict[int, DegreeSets] = {}
    for number, (kind, degrees) in enumerate(zip(kinds, chosen, strict=True)):
        following: dict[int, DegreeSets] = {}
        for order in permutations(degrees):
            inside = sum(change(kind, a, b) for a, b in pairwise(order))
            for before, path in ends.items() if number else [(order[0], DegreeSets((), 0.0))]:
                entered = change(kind, before, order[0])
                made = DegreeSets((*path.orders, order), path.seconds + entered + inside)
                known = following.get(order[-1])
                if known is None or made.seconds < known.seconds:
                    following[order[-1]] = made
        ends = following
    return min(ends.values(), key=lambda item: (item.seconds, item.orders))
