"""Fitting constants: least squares without negative coefficients, once or around a simulation."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
ROUNDS = 8
"""Most linearisations: the simulated step is made of straight pieces, so few change anything."""
HALVINGS = 6
"""Of a step that made the fit worse."""
NUDGES = (1e-7, 1e-7, 1e-7, 1e-7, 1e-3)
"""By how much each constant is changed to see what it does: seconds, and a part of one."""
TOLERANCE = 1e-9
"""Relative gain of a round below which there is no other."""


def fit_simulation(
    simulated: Callable[[list[float]], list[float]], measured_s: FloatArray, start: list[float]
) -> list[float]:
    """Constants, none negative, with which simulated steps come nearest to measured ones.

    Gauss and Newton's method: around the last guess the simulated steps are linear in the
    constants; the best ones of that line are the next guess, or a point on the way to them.

    Args:
        simulated: seconds of every step with given constants.
        measured_s: what they took.
        start: the first guess: seconds, and last a factor's part above one.
    """
    weights = 1 / measured_s
    guess = np.array(start, float)
    found_s = np.array(simulated(guess.tolist()))
    for _ in range(ROUNDS):
        slopes = _slopes(simulated, guess, found_s)
        goal = measured_s - found_s + slopes @ guess
        change = non_negative_least_squares(slopes, goal, weights) - guess
        before = _misfit(found_s, measured_s)
        for halving in range(HALVINGS):
            tried = guess + change / 2**halving
            tried_s = np.array(simulated(tried.tolist()))
            if _misfit(tried_s, measured_s) < before:
                break
        else:
            break
        guess, found_s = tried, tried_s
        if _misfit(found_s, measured_s) > before * (1 - TOLERANCE):
            break
    return [float(value) for value in guess]


def _misfit(found_s: FloatArray, measured_s: FloatArray) -> float:
    return float((((found_s - measured_s) / measured_s) ** 2).sum())


def _slopes(
    simulated: Callable[[list[float]], list[float]], guess: FloatArray, found_s: FloatArray
) -> FloatArray:
    """How much every step (rows) changes with each constant (columns)."""
    columns = []
    for number, nudge in enumerate(NUDGES):
        changed = guess.copy()
        changed[number] += nudge
        columns.append((np.array(simulated(changed.tolist())) - found_s) / nudge)
    return np.stack(columns, axis=1)


def non_negative_least_squares(
    matrix: FloatArray, values: FloatArray, weights: FloatArray
) -> FloatArray:
    """Weighted least squares with no negative coefficient, by trying every set of columns.

    The columns are few; the best set whose own solution is positive is the optimum. Where there
    are fewer rows than columns, sets of at most half as many columns as rows are tried, for more
    would repeat the rows and say nothing of what lies between them.
    """
    short = matrix.shape[0] < matrix.shape[1]
    most = max(1, matrix.shape[0] // 2) if short else matrix.shape[1]
    rows, goal = matrix * weights[:, None], values * weights
    best, least = np.zeros(matrix.shape[1]), float(goal @ goal)
    for chosen in itertools.product((False, True), repeat=matrix.shape[1]):
        columns = np.flatnonzero(chosen)
        if len(columns) > most:
            continue
        solution, *_ = np.linalg.lstsq(rows[:, columns], goal, rcond=None)
        rest = rows[:, columns] @ solution - goal
        if (solution > 0).all() and rest @ rest < least:
            best, least = np.zeros(matrix.shape[1]), float(rest @ rest)
            best[columns] = solution
    return best
