"""Choose the few programs that are worth timing.

Programs are clustered by their embedding, each weighing as many seconds as its plans spend on it;
of every cluster the program nearest to the center is timed. CDMPP (Hu et al., EuroSys 2024,
section 5.4) takes one task of each cluster of the source's samples, largest first; here plans
weigh them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats

ROUNDS = 30
"""Most rounds of Lloyd's algorithm; centers rarely move after ten."""
LEAST_WEIGHT = 1e-3
"""Least weight of a program, relative to the mean: what plans hardly use counts a little."""


def chosen_programs(embeddings: Floats, seconds: Floats, count: int, seed: int = 0) -> list[int]:
    """Numbers of at most ``count`` programs, those of the heaviest clusters first.

    Args:
        embeddings: (programs, values); columns are brought to one scale here.
        seconds: seconds of each program in its plans.
        count: of programs to choose.
        seed: of the first centers; same inputs and seed, same choice.
    """
    if count >= len(embeddings):
        return sorted(range(len(embeddings)), key=lambda row: (-seconds[row], row))
    spread = embeddings.std(axis=0)
    points = (embeddings - embeddings.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    weights = np.maximum(seconds / max(seconds.mean(), 1e-30), LEAST_WEIGHT)
    centers, owner = _clusters(points, weights, count, np.random.default_rng(seed))
    chosen = []
    for cluster in range(len(centers)):
        members = np.flatnonzero(owner == cluster)
        if len(members):
            nearest = members[np.argmin(_distances(points[members], centers[cluster]))]
            chosen.append((-float(weights[members].sum()), int(nearest)))
    return [row for _, row in sorted(chosen)]


def _clusters(
    points: Floats, weights: Floats, count: int, random: np.random.Generator
) -> tuple[Floats, NDArray[np.intp]]:
    """Centers and the cluster of each point: k-means++ and Lloyd's algorithm.

    Arthur and Vassilvitskii (SODA 2007), with weights.
    """
    centers = np.empty((count, points.shape[1]))
    nearest = np.ones(len(points))
    for number in range(count):
        chance = np.cumsum(weights * nearest)
        place = int(np.searchsorted(chance, random.random() * chance[-1], side="right"))
        centers[number] = points[min(place, len(points) - 1)]
        distance = _distances(points, centers[number])
        nearest = distance if number == 0 else np.minimum(nearest, distance)
    owner = np.zeros(len(points), np.intp)
    for _ in range(ROUNDS):
        closest = np.stack([_distances(points, center) for center in centers]).argmin(axis=0)
        for cluster in np.unique(closest):
            members = closest == cluster
            centers[cluster] = np.average(points[members], axis=0, weights=weights[members])
        if np.array_equal(closest, owner):
            break
        owner = closest
    return centers, owner


def _distances(points: Floats, center: Floats) -> Floats:
    distances: Floats = ((points - center) ** 2).sum(axis=1)
    return distances
