"""Families of near duplicates from verified pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def candidate_pairs(signatures: Array, bands: int) -> Array:
    """Pairs of rows that agree in a band, (pairs, 2), each once, the smaller first.

    ``signatures``: (rows, permutations); rows without words are left to the caller.
    """
    rows = signatures.shape[1] // bands
    found: list[Array] = []
    for band in range(bands):
        part = np.ascontiguousarray(signatures[:, band * rows : (band + 1) * rows])
        whole = part.view(np.dtype((np.void, part.dtype.itemsize * rows))).reshape(-1)
        order = np.argsort(whole, kind="stable")
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = whole[order[1:]] != whole[order[:-1]]
        starts = np.flatnonzero(is_new)
        ends = np.append(starts[1:], len(order))
        for start, end in zip(starts, ends, strict=True):
            if end - start > 1:
                found.append(_pairs(np.sort(order[start:end])))
    if not found:
        return np.empty((0, 2), dtype=np.int64)
    return np.unique(np.concatenate(found), axis=0)


def _pairs(members: Array) -> Array:
    first, second = np.triu_indices(len(members), k=1)
    return np.stack((members[first], members[second]), axis=1)


def jaccard(first: Array, second: Array) -> float:
    """Jaccard similarity of two sorted sets."""
    both = np.concatenate((first, second))
    both.sort()
    common = int(np.count_nonzero(both[1:] == both[:-1]))
    union = len(both) - common
    return common / union if union else 0.0


def keepers(pairs: Array, lengths: Array, keys: Sequence[bytes]) -> Array:
    """For each row the row that stands for it, itself if it stays.

    The longest row is taken first, ties by key; it stands for what is left of its own pairs. So
    everything dropped is similar to what stays for it, and no chain joins strangers: of two members
    of a family neither is further from the keeper than the threshold.
    """
    neighbors: dict[int, list[int]] = {}
    for one, other in pairs.tolist():
        neighbors.setdefault(one, []).append(other)
        neighbors.setdefault(other, []).append(one)
    keeper = np.arange(len(lengths))
    is_taken = np.zeros(len(lengths), dtype=bool)
    for row in sorted(neighbors, key=lambda row: (-int(lengths[row]), keys[row], row)):
        if is_taken[row]:
            continue
        is_taken[row] = True
        for other in neighbors[row]:
            if not is_taken[other]:
                is_taken[other] = True
                keeper[other] = row
    return keeper
