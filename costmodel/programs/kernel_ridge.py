"""Kernel ridge regression of a residual on few timed rows.

Saunders, Gammerman and Vovk (ICML 1998), with an exponential kernel. Its width and the penalty are
those that err least on each row left out. A row that the others contradict (a slip of a digit, a
kernel that was interrupted) is found by the same figure and left out of the fit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats

WIDTHS, PENALTIES = (0.5, 1.0, 2.0, 4.0), (1e-3, 1e-2, 1e-1)
OUTLIER = math.log(4)
"""A row farther than this from what the others say, and six times the usual distance, is none."""
USUAL = 6 * 1.4826
"""Six standard deviations, of a normal distribution, over the median distance."""
MOST_OUT = 0.1
"""Most rows, as a part, that may be left out as contradicted."""


class KernelRidge(NamedTuple):
    """Log ratios near timed points; far from all of them, ``mean``.

    ``points``: (rows, features); ``weights``: one a row; ``width`` of the exponential kernel.
    """

    points: Floats
    weights: Floats
    mean: float
    width: float

    def at(self, queries: Floats) -> Floats:
        """Values of queries (rows, features)."""
        nearness = np.exp(-_distances(queries, self.points) / self.width)
        return np.asarray(self.mean + nearness @ self.weights)


class RidgeFit(NamedTuple):
    """A regression, the numbers of its rows, and what each is off by left out."""

    ridge: KernelRidge
    rows: NDArray[np.intp]
    left_out: Floats


def fit_ridge(points: Floats, targets: Floats) -> RidgeFit:
    """The regression on all rows that do not contradict the others.

    Args:
        points: (rows, features), brought to one scale.
        targets: log ratios, one a row.
    """
    kept = np.arange(len(targets))
    least = len(targets) * (1 - MOST_OUT)
    while True:
        ridge, left_out = _ridge(points[kept], targets[kept])
        far = np.abs(left_out - np.median(left_out))
        worst = int(far.argmax())
        agrees = far[worst] < max(OUTLIER, USUAL * float(np.median(far)))
        if agrees or len(kept) - 1 < least:
            return RidgeFit(ridge, kept, left_out)
        kept = np.delete(kept, worst)


def _ridge(points: Floats, targets: Floats) -> tuple[KernelRidge, Floats]:
    mean = float(np.median(targets))
    centered, apart = targets - mean, _distances(points, points)
    least = (math.inf, WIDTHS[0], PENALTIES[0])
    left_out = centered
    for width in WIDTHS:
        for penalty in PENALTIES:
            inverse = np.linalg.inv(_penalized(apart, width, penalty))
            errors: Floats = np.asarray((inverse @ centered) / np.diag(inverse), np.float64)
            found = (float(np.abs(errors).mean()), width, penalty)
            if found < least:
                least, left_out = found, errors
    _, width, penalty = least
    weights = np.asarray(np.linalg.solve(_penalized(apart, width, penalty), centered), np.float64)
    return KernelRidge(points, weights, mean, width), left_out


def _penalized(apart: Floats, width: float, penalty: float) -> Floats:
    return np.asarray(np.exp(-apart / width) + penalty * np.eye(len(apart)))


def _distances(left: Floats, right: Floats) -> Floats:
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)))
