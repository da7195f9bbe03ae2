"""Clusters that split and merge by a distance until still (ISODATA; Ball and Hall 1965)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..text_mining.embed import unit

Array = np.ndarray[Any, Any]
STILL = 1e-3
"""Mean change of centers, as 1 - cosine, at which clusters are still."""
MAX_CENTERS = 512
ROWS_AT_ONCE = 8192


def clusters(vectors: Array, distance: float, rounds: int) -> Array:
    """Label of each vector: unit vectors nearer to a center than ``distance`` (1 - cosine).

    A vector that no center is near to begins a cluster, up to ``MAX_CENTERS``; centers nearer to
    each other than ``distance`` / 2 merge.
    """
    centers = vectors[:1].copy() if len(vectors) else vectors
    labels = np.zeros(len(vectors), dtype=np.int64)
    for _ in range(rounds if len(vectors) else 0):
        centers = _merged(_spawned(vectors, centers, distance), distance / 2)
        labels, _ = _nearest(vectors, centers)
        used, labels = np.unique(labels, return_inverse=True)
        moved = np.zeros((len(used), vectors.shape[1]))
        np.add.at(moved, labels, vectors)
        moved = unit(moved)
        change = float(np.mean(1 - np.sum(moved * centers[used], axis=1)))
        centers = moved
        if change < STILL:
            break
    return labels


def _nearest(vectors: Array, centers: Array) -> tuple[Array, Array]:
    labels, likeness = [], []
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        products = vectors[start : start + ROWS_AT_ONCE] @ centers.T
        labels.append(products.argmax(axis=1))
        likeness.append(products.max(axis=1))
    return np.concatenate(labels), np.concatenate(likeness)


def _spawned(vectors: Array, centers: Array, distance: float) -> Array:
    best = _nearest(vectors, centers)[1]
    found = [centers]
    count = len(centers)
    while count < MAX_CENTERS:
        row = int(best.argmin())
        if 1 - best[row] <= distance:
            break
        found.append(vectors[row : row + 1])
        best = np.maximum(best, vectors @ vectors[row])
        count += 1
    return np.concatenate(found)


def _merged(centers: Array, distance: float) -> Array:
    left: list[Array] = []
    for center in centers:
        if not left or float((np.stack(left) @ center).max()) < 1 - distance:
            left.append(center)
    return np.stack(left)
