"""Queue of shapes, best bound first, bounds refined at a shape's turn.

A quick bound, never above the exact one, gives a shape its position in a heap. The top shape is
bounded more exactly and put back, until its bound is exact: then it is the next. So the order is
that of exact bounds, ties by number, and most exact bounds are never needed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import overload

BoundedNode = tuple[float, int]
"""A proven lower bound, and the number of its shape."""


class NodeQueue(Sequence[BoundedNode]):
    """Sequence of (exact bound, number) by growing bound.

    Args:
        quick: (quick bound, number) of every shape.
        refinements: better bounds by shape number, each at least the one before; they may raise to
            end the search.
    """

    def __init__(self, quick: Sequence[BoundedNode], *refinements: Callable[[int], float]) -> None:
        self._refinements = refinements
        self._length = len(quick)
        self._ordered: list[BoundedNode] = []
        self._heap = [(bound, number, 0) for bound, number in quick]
        heapq.heapify(self._heap)

    @property
    def least(self) -> float:
        """Proven lower bound on every plan of every shape so far."""
        if self._ordered:
            return self._ordered[0][0]
        return self._heap[0][0] if self._heap else float("inf")

    def __len__(self) -> int:
        """Number of shapes."""
        return self._length

    @overload
    def __getitem__(self, index: int) -> BoundedNode: ...

    @overload
    def __getitem__(self, index: slice) -> list[BoundedNode]: ...

    def __getitem__(self, index: int | slice) -> BoundedNode | list[BoundedNode]:
        """Shape at an index of the order, or several."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._length))]
        if not 0 <= index < self._length:
            raise IndexError(index)
        while len(self._ordered) <= index:
            self._pop()
        return self._ordered[index]

    def __iter__(self) -> Iterator[BoundedNode]:
        """By growing exact bound."""
        for index in range(self._length):
            yield self[index]

    def _pop(self) -> None:
        """Move the next shape of the order out of the heap."""
        while True:
            bound, number, level = self._heap[0]
            if level == len(self._refinements):
                heapq.heappop(self._heap)
                self._ordered.append((bound, number))
                return
            better = max(bound, self._refinements[level](number))
            heapq.heapreplace(self._heap, (better, number, level + 1))
