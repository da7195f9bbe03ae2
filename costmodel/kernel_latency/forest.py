"""Boosted regression trees as flat arrays, evaluated for many rows at once.

Nodes of all trees are in one array: branch i leads to ``left[i]`` where ``feature[i]`` is below
``threshold[i]``, else to ``left[i] + 1``; a leaf leads to itself, so all rows take equally many
steps. A row's value is the sum of its leaves (Friedman, Greedy Function Approximation: A Gradient
Boosting Machine, 2001).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
MOST_AT_ONCE = 512
"""Rows evaluated together: intermediate arrays hold one number per row and tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Trees over numbered features.

    ``feature`` uint8, ``threshold`` float32, ``left`` int32 and ``value`` float32 have one entry
    per node; ``roots`` int32 one per tree; ``depth``: most steps from a root to a leaf.
    """

    feature: NDArray[np.uint8]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    depth: int

    def at(self, rows: Rows) -> NDArray[np.float64]:
        """Values of rows, float32 of shape (rows, features)."""
        parts = [
            self._at_once(rows[start : start + MOST_AT_ONCE])
            for start in range(0, len(rows), MOST_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _at_once(self, rows: Rows) -> NDArray[np.float64]:
        node = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        line = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            beyond = rows[line, self.feature[node]] >= self.threshold[node]
            node = self.left[node] + beyond
        return np.asarray(self.value[node].sum(axis=1, dtype=np.float64))


def read_forest(path: Path) -> Forest:
    """Read the forest of an ``.npz`` file, executing nothing in it."""
    with np.load(path, allow_pickle=False) as arrays:
        return Forest(
            feature=arrays["feature"],
            threshold=arrays["threshold"],
            left=arrays["left"],
            value=arrays["value"],
            roots=arrays["roots"],
            depth=int(arrays["depth"]),
        )
