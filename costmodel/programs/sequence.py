"""Programs as padded sequences of leaves, and as one pooled row each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .leaf_features import NAMES, leaf_features
from .nest import Program

LEAST_LEAVES = 1


class Leaves(NamedTuple):
    """Padded leaves of programs.

    ``features`` float32 (programs, leaves, features); ``positions`` float32 (programs, leaves);
    ``mask`` bool (programs, leaves), True where there is a leaf.
    """

    features: NDArray[np.float32]
    positions: NDArray[np.float32]
    mask: NDArray[np.bool_]

    def rows(self, chosen: NDArray[np.intp] | slice) -> Leaves:
        """The chosen programs."""
        return Leaves(self.features[chosen], self.positions[chosen], self.mask[chosen])


def leaves_of(programs: Sequence[Program]) -> Leaves:
    """Features and positions of every leaf; programs are padded to the longest."""
    most = max((len(program.leaves) for program in programs), default=LEAST_LEAVES)
    features = np.zeros((len(programs), most, len(NAMES)), np.float32)
    positions = np.zeros((len(programs), most), np.float32)
    mask = np.zeros((len(programs), most), np.bool_)
    for row, program in enumerate(programs):
        for column, leaf in enumerate(program.leaves):
            features[row, column] = leaf_features(leaf)
            positions[row, column] = leaf.position
            mask[row, column] = True
    return Leaves(features, positions, mask)


def pooled(leaves: Leaves) -> NDArray[np.float32]:
    """Sum, largest value and number of leaves: the row that trees are fitted to."""
    weight = leaves.mask[..., None]
    total = (leaves.features * weight).sum(axis=1)
    most = np.where(weight, leaves.features, -np.inf).max(axis=1)
    count = leaves.mask.sum(axis=1, keepdims=True)
    return np.concatenate([total, most, count], axis=1).astype(np.float32)
