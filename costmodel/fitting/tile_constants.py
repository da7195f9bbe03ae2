"""Fit the constants of :mod:`programs.tile_work` by a pattern search of their logarithms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..arrays import Floats
from ..programs.tile_work import DeviceRates, TileConstants, TileWork, tiled_seconds

FIRST_STEP, LAST_STEP, SMOOTH = 0.5, 0.01, 0.02
MOST_ROWS = 4000


def fit_constants(
    work: TileWork, on: DeviceRates, time_s: Floats, weights: Floats
) -> TileConstants:
    """Constants of the least weighted mean of |log(predicted / measured)|.

    Hooke and Jeeves, Direct Search (JACM 1961): each constant in turn is multiplied or divided by a
    step, which halves when none helps.
    """
    thin = slice(None, None, max(1, len(time_s) // MOST_ROWS))
    work, on = TileWork(*(x[thin] for x in work)), DeviceRates(*(x[thin] for x in on))
    log_s, weights = np.log(time_s[thin]), weights[thin] / weights[thin].sum()

    def error(logs: Floats) -> float:
        predicted = tiled_seconds(work, on, TileConstants(*np.exp(logs)))
        distance = np.hypot(np.log(predicted) - log_s, SMOOTH)
        return float((weights * distance).sum())

    logs = np.log(np.array(TileConstants()))
    best, step = error(logs), FIRST_STEP
    while step > LAST_STEP:
        trial, value = _explored(logs, best, step, error)
        if value >= best:
            step /= 2
            continue
        while value < best:  # go on in the direction that helped
            ahead = 2 * trial - logs
            logs, best = trial, value
            trial, value = _explored(ahead, error(ahead), step, error)
    return TileConstants(*(float(x) for x in np.exp(logs)))


def _explored(
    logs: Floats, best: float, step: float, error: Callable[[Floats], float]
) -> tuple[Floats, float]:
    """The point after a step of each constant either way, where that helps."""
    logs = logs.copy()
    for place in range(len(logs)):
        for move in (step, -step):
            logs[place] += move
            value = error(logs)
            if value < best:
                best = value
                break
            logs[place] -= move
    return logs, best
