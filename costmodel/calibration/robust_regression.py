"""Robust regression with priors: a few constants from ten or fewer rows.

The least of ``misses(residuals) + sum_k (c_k / d_k)²`` over constants c, where residuals are
logarithms of predicted over measured and d_k is the prior deviation of c_k. Gauss-Newton on the
reweighted squares (Holland and Welsch, 1977), with derivatives by one more prediction of each row
per constant. Not scipy's, for a light base and stable bits.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..arrays import Floats

LEAST_OTHERS = 0.05
"""Least share of a row's fitted value attributed to the other rows."""


class Regression(NamedTuple):
    """A regression problem.

    ``residuals`` of constants; ``weights`` and ``misses`` of residuals, ``misses`` in units of
    ``spread``, the deviation of a residual; ``doubt``: d_k; ``steps``: finite differences of the
    derivatives; ``limits``: least and largest constant.
    """

    residuals: Callable[[Floats], Floats]
    weights: Callable[[Floats], Floats]
    misses: Callable[[Floats], float]
    spread: float
    doubt: Floats
    steps: tuple[float, ...]
    rounds: int
    limits: tuple[float, float] = (-math.inf, math.inf)


class Fitted(NamedTuple):
    """Constants, residuals before and after, and leverage of each row."""

    point: Floats
    shipped: Floats
    residuals: Floats
    own_shares: Floats

    @property
    def left_out(self) -> Floats:
        """Residuals of each row predicted from the others."""
        residuals: Floats = self.residuals / np.maximum(1 - self.own_shares, LEAST_OTHERS)
        return residuals


def fitted(problem: Regression) -> Fitted:
    """Fit the constants, starting from all 0."""
    point = np.zeros(len(problem.doubt))
    shipped = residuals = problem.residuals(point)
    for _ in range(problem.rounds):
        slopes = _slopes(problem, point, residuals)
        improved = _downhill(problem, point, residuals, _move(problem, slopes, residuals, point))
        if improved is None:
            break
        point, residuals = improved
    own_shares = _own_shares(problem, _slopes(problem, point, residuals), residuals)
    return Fitted(point, shipped, residuals, own_shares)


def median_error(residuals: Floats) -> float:
    """Median relative size of the residuals."""
    return round(statistics.median(abs(math.expm1(x)) for x in residuals), 6)


def _slopes(problem: Regression, point: Floats, residuals: Floats) -> Floats:
    columns = []
    for number, step in enumerate(problem.steps):
        moved = point.copy()
        moved[number] += step
        columns.append((problem.residuals(moved) - residuals) / step)
    return np.column_stack(columns)


def _objective(problem: Regression, residuals: Floats, point: Floats) -> float:
    return float(problem.misses(residuals) + ((point / problem.doubt) ** 2).sum())


def _normal(problem: Regression, slopes: Floats, weights: Floats) -> Floats:
    scaled: Floats = slopes.T * (weights / problem.spread**2)
    return scaled @ slopes + np.diag(1 / problem.doubt**2)


def _move(problem: Regression, slopes: Floats, residuals: Floats, point: Floats) -> Floats:
    weights = problem.weights(residuals)
    pull = slopes.T @ (weights * residuals) / problem.spread**2 + point / problem.doubt**2
    move = np.linalg.solve(_normal(problem, slopes, weights), -pull)
    return np.asarray(move, dtype=np.float64)


def _downhill(
    problem: Regression, point: Floats, residuals: Floats, move: Floats
) -> tuple[Floats, Floats] | None:
    current = _objective(problem, residuals, point)
    for fraction in (1.0, 0.5, 0.25):
        candidate = np.clip(point + fraction * move, *problem.limits)
        candidate_residuals = problem.residuals(candidate)
        if _objective(problem, candidate_residuals, candidate) < current:
            return candidate, candidate_residuals
    return None


def _own_shares(problem: Regression, slopes: Floats, residuals: Floats) -> Floats:
    """Leverage of each row."""
    weights = problem.weights(residuals)
    spread = np.linalg.solve(_normal(problem, slopes, weights), slopes.T)
    leverage: Floats = weights / problem.spread**2 * np.einsum("rk,kr->r", slopes, spread)
    return leverage
