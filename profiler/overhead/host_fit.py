"""Non-negative least squares, directly or around a simulation.

Written out to keep scipy from being needed for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
ROUNDS = 8
"""Most linearizations: the simulated step is piecewise linear, so few change anything."""
HALVINGS = 6
"""Of a step that made the fit worse."""
NUDGES = (1e-7, 1e-7, 1e-7, 1e-7, 1e-3)
"""Increments of each constant for its derivative: seconds, and a fraction."""
TOLERANCE = 1e-9
"""Relative gain of a round below which the fit ends."""


def fit_simulation(
    simulated: Callable[[list[float]], list[float]], measured_s: FloatArray, start: list[float]
) -> list[float]:
    """Non-negative constants with which simulated steps fit measured ones best.

    Gauss-Newton: around the last guess the simulated steps are linear in the constants; the optimum
    of that linear model is the next guess, or a point on the way to it.

    Args:
        simulated: seconds of every step for given constants.
        measured_s: measured seconds of every step.
        start: the first guess: seconds, and last a factor's part above one.
    """
    weights = 1 / measured_s
    guess = np.array(start, float)
    simulated_s = np.array(simulated(guess.tolist()))
    for _ in range(ROUNDS):
        slopes = _slopes(simulated, guess, simulated_s)
        goal = measured_s - simulated_s + slopes @ guess
        change = non_negative_least_squares(slopes, goal, weights) - guess
        before = _misfit(simulated_s, measured_s)
        for halving in range(HALVINGS):
            candidate = guess + change / 2**halving
            candidate_s = np.array(simulated(candidate.tolist()))
            if _misfit(candidate_s, measured_s) < before:
                break
        else:
            break
        guess, simulated_s = candidate, candidate_s
        if _misfit(simulated_s, measured_s) > before * (1 - TOLERANCE):
            break
    return [float(value) for value in guess]


def _misfit(simulated_s: FloatArray, measured_s: FloatArray) -> float:
    return float((((simulated_s - measured_s) / measured_s) ** 2).sum())


def _slopes(
    simulated: Callable[[list[float]], list[float]], guess: FloatArray, simulated_s: FloatArray
) -> FloatArray:
    columns = []
    for number, nudge in enumerate(NUDGES):
        changed = guess.copy()
        changed[number] += nudge
        columns.append((np.array(simulated(changed.tolist())) - simulated_s) / nudge)
    return np.stack(columns, axis=1)


def non_negative_least_squares(
    matrix: FloatArray, values: FloatArray, weights: FloatArray
) -> FloatArray:
    """Weighted least squares with no negative coefficient, over all sets of columns.

    The columns are few; the best set whose own solution is positive is the optimum. With fewer rows
    than columns, sets of at most half as many columns as rows are tried, for more would interpolate
    the rows and predict nothing between them.
    """
    underdetermined = matrix.shape[0] < matrix.shape[1]
    most_columns = max(1, matrix.shape[0] // 2) if underdetermined else matrix.shape[1]
    rows, goal = matrix * weights[:, None], values * weights
    best, least = np.zeros(matrix.shape[1]), float(goal @ goal)
    for mask in itertools.product((False, True), repeat=matrix.shape[1]):
        columns = np.flatnonzero(mask)
        if len(columns) > most_columns:
            continue
        solution, *_ = np.linalg.lstsq(rows[:, columns], goal, rcond=None)
        residual = rows[:, columns] @ solution - goal
        if (solution > 0).all() and residual @ residual < least:
            best, least = np.zeros(matrix.shape[1]), float(residual @ residual)
            best[columns] = solution
    return best
