"""Log seconds over a full grid of sizes, interpolated between its points.

Work is a product of powers of the sizes, so interpolation is linear in log sizes.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats


class GridPoint(NamedTuple):
    """Interpolated log seconds, with each size clamped to the grid."""

    log_s: float
    inside: tuple[float, ...]


class LogGrid:
    """Interpolated log seconds.

    Args:
        axes: ascending sizes of each axis.
        log_s: log seconds of each combination, complete.
    """

    def __init__(self, axes: Sequence[Sequence[float]], log_s: Floats) -> None:
        self.log_s = log_s
        self._edges = [(float(axis[0]), float(axis[-1])) for axis in axes]
        self._logs = [[math.log(size) for size in axis] for axis in axes]

    def at(self, sizes: Sequence[float]) -> GridPoint:
        """Log seconds at these sizes, clamped to the grid's edges."""
        inside = tuple(
            min(max(size, low), high) for size, (low, high) in zip(sizes, self._edges, strict=True)
        )
        sides = [_sides(axis, math.log(x)) for axis, x in zip(self._logs, inside, strict=True)]
        total = 0.0
        for corner in product(*sides):
            weight = math.prod(share for _, share in corner)
            total += weight * float(self.log_s[tuple(number for number, _ in corner)])
        return GridPoint(total, inside)


def _sides(axis: Sequence[float], x: float) -> list[tuple[int, float]]:
    right = bisect.bisect_left(axis, x)
    if right >= len(axis):
        return [(len(axis) - 1, 1.0)]
    if axis[right] == x or right == 0:
        return [(right, 1.0)]
    share = (x - axis[right - 1]) / (axis[right] - axis[right - 1])
    return [(right - 1, 1 - share), (right, share)]


def rising(log_s: Floats) -> Floats:
    """Make seconds monotone: each point at least every smaller one."""
    for axis in range(log_s.ndim):
        log_s = np.maximum.accumulate(log_s, axis=axis)
    return log_s


def filled(log_s: Floats, base: Floats) -> Floats:
    """Fill missing points (NaN) of ``log_s`` from ``base`` and the nearest residuals.

    A missing point's residual is the mean of its neighbors' on all axes, first of measured ones,
    then of those filled before.

    Args:
        log_s: log seconds, NaN where unmeasured; at least one is not.
        base: log seconds of a prediction, of the same shape.
    """
    residual = log_s - base
    while np.isnan(residual).any():
        is_known = np.isfinite(residual)
        total, count = np.zeros_like(residual), np.zeros_like(residual)
        for axis in range(residual.ndim):
            for towards in (1, -1):
                value, has_neighbor = _shifted(residual, is_known, axis, towards)
                total += np.where(has_neighbor, value, 0.0)
                count += has_neighbor
        fillable = ~is_known & (count > 0)
        residual = np.where(fillable, total / np.maximum(count, 1), residual)
    return np.asarray(base + residual, dtype=np.float64)


def _shifted(
    values: Floats, is_known: NDArray[np.bool_], axis: int, towards: int
) -> tuple[Floats, NDArray[np.bool_]]:
    has_neighbor = np.roll(is_known, towards, axis=axis)
    edge = [slice(None)] * values.ndim
    edge[axis] = slice(0, 1) if towards > 0 else slice(-1, None)
    has_neighbor[tuple(edge)] = False
    return np.roll(values, towards, axis=axis), has_neighbor
