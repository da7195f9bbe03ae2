"""Named results that a recomputed pass keeps, from its forward to its backward."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .symbolic_tensor import SymbolicTensor

ResultNames = tuple[str, ...]


class SavedResults:
    """Results kept by name; each is taken once, in the order in which it was kept.

    A fused product has the names of all its parts, and is kept if one of them is.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self._kept: dict[ResultNames, deque[tuple[SymbolicTensor, ...]]] = {}

    def keep(self, names: ResultNames, results: tuple[SymbolicTensor, ...]) -> None:
        """Keep ``results`` if one of ``names`` is kept."""
        if not self.names.isdisjoint(names):
            self._kept.setdefault(names, deque()).append(results)

    def take(self, names: ResultNames) -> tuple[SymbolicTensor, ...] | None:
        """Take results that were kept under these names, or None."""
        kept = self._kept.get(names)
        return kept.popleft() if kept else None
