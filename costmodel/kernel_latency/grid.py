"""Measured rates over a grid of sizes, gaps filled from neighbors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from ...spec.errors import InputError
from .log_grid import LogGrid, rising

MOST_POINTS = 4096
"""Far above any sweep (216 products); more means that sizes do not lie on a grid."""
Point = tuple[int, ...]


class Grid:
    """Rate of work over a full grid of sizes, a :class:`LogGrid`.

    An unmeasured point takes the rate of the nearest in log sizes; then larger sizes never take
    less time.

    Args:
        rates: work per second at measured sizes.
        powers: power of each size in the work.

    Raises:
        InputError: sizes that span too large a grid.
    """

    def __init__(self, rates: dict[Point, float], powers: Sequence[int]) -> None:
        axes, points = _axes(rates), grid_points(rates)
        if points > MOST_POINTS:
            allowed = f"measured kernels on a grid of at most {MOST_POINTS} sizes"
            raise InputError("profile", f"{points} grid points", allowed)
        log_s = [
            _log_work(point, powers) - math.log(_nearest_rate(point, rates))
            for point in product(*axes)
        ]
        self._powers = powers
        self._times = LogGrid(axes, rising(np.reshape(log_s, [len(axis) for axis in axes])))

    def rate(self, sizes: Point) -> float:
        """Work per second at these sizes, clamped to the grid."""
        log_s, inside = self._times.at(sizes)
        return math.exp(_log_work(inside, self._powers) - log_s)


def grid_points(points: Iterable[Point]) -> int:
    """Points of the full grid that these span."""
    return math.prod(len(axis) for axis in _axes(points))


def _axes(points: Iterable[Point]) -> list[list[int]]:
    return [sorted(set(sizes)) for sizes in zip(*points, strict=True)]


def _log_work(point: Sequence[float], powers: Sequence[int]) -> float:
    return sum(power * math.log(size) for size, power in zip(point, powers, strict=True))


def _nearest_rate(point: Point, rates: dict[Point, float]) -> float:
    """Nearest measured rate in log sizes; of ties, the slowest."""
    if point in rates:
        return rates[point]
    return min((_log_distance(point, other), rate) for other, rate in rates.items())[1]


def _log_distance(point: Point, other: Point) -> float:
    """Rounded, so that equal distances compare equal."""
    return round(math.dist([math.log(x) for x in point], [math.log(x) for x in other]), 9)
