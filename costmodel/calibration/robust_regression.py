"""Robust regression with priors: the few constants of a calibration from ten or fewer rows.

The least of ``misses(residuals) + sum_k (c_k / d_k)²`` over constants c, where residuals are
logarithms of predicted over measured and d_k is how far c_k may be off before a row has to say so.
Gauss-Newton on the reweighted squares (Holland and Welsch, 1977), with derivatives by predicting
each row once more for every constant.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_OTHERS = 0.05
"""Least part of a row's fitted value that is taken to come from the other rows."""
FitVector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Regression(NamedTuple):
    """What is fitted.

    ``residuals`` of constants; ``weights`` and ``misses`` of residuals, ``misses`` in units of
    ``spread``, the deviation of a residual; ``doubt`` is d_k, ``steps`` how far each constant is
    moved for its derivative, ``limits`` the least and the largest of any.
    """

    residuals: Callable[[FitVector], FitVector]
    weights: Callable[[FitVector], FitVector]
    misses: Callable[[FitVector], float]
    spread: float
    doubt: FitVector
    steps: tuple[float, ...]
    rounds: int
    limits: tuple[float, float] = (-math.inf, math.inf)


class Fitted(NamedTuple):
    """Constants, residuals before and after, each row's share in its own fitted value."""

    point: FitVector
    shipped: FitVector
    residuals: FitVector
    own_shares: FitVector

    @property
    def left_out(self) -> FitVector:
        """Residuals of each row predicted from the others."""
        found: FitVector = self.residuals / np.maximum(1 - self.own_shares, LEAST_OTHERS)
        return found


def fitted(problem: Regression) -> Fitted:
    """The constants that the rows call for, from all of them 0 on."""
    point = np.zeros(len(problem.doubt))
    shipped = residuals = problem.residuals(point)
    for _ in range(problem.rounds):
        slopes = _slopes(problem, point, residuals)
        found = _downhill(problem, point, residuals, _move(problem, slopes, residuals, point))
        if found is None:
            break
        point, residuals = found
    own = _own_shares(problem, _slopes(problem, point, residuals), residuals)
    return Fitted(point, shipped, residuals, own)


def median_error(residuals: FitVector) -> float:
    """The median of what residuals are as shares of what was measured."""
    return round(statistics.median(abs(math.expm1(x)) for x in residuals), 6)


def _slopes(problem: Regression, point: FitVector, residuals: FitVector) -> Matrix:
    """How each row's residual changes with each constant."""
    columns = []
    for number, step in enumerate(problem.steps):
        moved = point.copy()
        moved[number] += step
        columns.append((problem.residuals(moved) - residuals) / step)
    return np.column_stack(columns)


def _objective(problem: Regression, residuals: FitVector, point: FitVector) -> float:
    return float(problem.misses(residuals) + ((point / problem.doubt) ** 2).sum())


def _normal(problem: Regression, slopes: Matrix, weights: FitVector) -> Matrix:
    scaled: Matrix = slopes.T * (weights / problem.spread**2)
    return scaled @ slopes + np.diag(1 / problem.doubt**2)


def _move(problem: Regression, slopes: Matrix, residuals: FitVector, point: FitVector) -> FitVector:
    """The step of Gauss and Newton."""
    weights = problem.weights(residuals)
    pull = slopes.T @ (weights * residuals) / problem.spread**2 + point / problem.doubt**2
    move = np.linalg.solve(_normal(problem, slopes, weights), -pull)
    return np.asarray(move, dtype=np.float64)


def _downhill(
    problem: Regression, point: FitVector, residuals: FitVector, move: FitVector
) -> tuple[FitVector, FitVector] | None:
    """The whole move, or a part of it, where that is better; None where none is."""
    best = _objective(problem, residuals, point)
    for part in (1.0, 0.5, 0.25):
        tried = np.clip(point + part * move, *problem.limits)
        found = problem.residuals(tried)
        if _objective(problem, found, tried) < best:
            return tried, found
    return None


def _own_shares(problem: Regression, slopes: Matrix, residuals: FitVector) -> FitVector:
    """Each row's share in its own fitted value: its leverage."""
    weights = problem.weights(residuals)
    spread = np.linalg.solve(_normal(problem, slopes, weights), slopes.T)
    found: FitVector = weights / problem.spread**2 * np.einsum("rk,kr->r", slopes, spread)
    return found
