"""Shapes in the order of their proven bounds, each bounded exactly only when its turn comes.

A quick bound that is never above the exact one holds a shape's place in a heap. What comes to
the top is bounded exactly and put back, unless it has been: then it is the next. So the order
is that of the exact bounds, ties by number, and most exact bounds are never needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import overload

BoundedNode = tuple[float, int]
"""A proven lower bound in seconds, and the number of its shape."""


class NodeQueue(Sequence[BoundedNode]):
    """A sequence of (exact bound, number) by growing bound.

    Args:
        quick: (quick bound, number) of every shape.
        exact: better bounds of a shape's number, each at least as good as the one before; they
            may raise to end the search.
    """

    def __init__(self, quick: Sequence[BoundedNode], *exact: Callable[[int], float]) -> None:
        self._exact = exact
        self._length = len(quick)
        self._known: list[BoundedNode] = []
        self._heap = [(bound, number, 0) for bound, number in quick]
        heapq.heapify(self._heap)

    @property
    def least(self) -> float:
        """A proven lower bound on every plan of every shape, as far as it is known now."""
        if self._known:
            return self._known[0][0]
        return self._heap[0][0] if self._heap else float("inf")

    def __len__(self) -> int:
        """Number of shapes."""
        return self._length

    @overload
    def __getitem__(self, place: int) -> BoundedNode: ...

    @overload
    def __getitem__(self, place: slice) -> list[BoundedNode]: ...

    def __getitem__(self, place: int | slice) -> BoundedNode | list[BoundedNode]:
        """The shape at a place of the order, or several."""
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._length))]
        if not 0 <= place < self._length:
            raise IndexError(place)
        while len(self._known) <= place:
            self._next()
        return self._known[place]

    def __iter__(self) -> Iterator[BoundedNode]:
        """By growing exact bound."""
        for place in range(self._length):
            yield self[place]

    def _next(self) -> None:
        """Find one more shape of the order."""
        while True:
            bound, number, level = self._heap[0]
            if level == len(self._exact):
                heapq.heappop(self._heap)
                self._known.append((bound, number))
                return
            better = max(bound, self._exact[level](number))
            heapq.heapreplace(self._heap, (better, number, level + 1))
