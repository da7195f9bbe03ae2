"""Measured rates over a grid of sizes: full, monotone in time, interpolated between points."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import product

from ...spec.errors import InputError

MOST_POINTS = 4096
"""Far above any sweep (216 products); more means that sizes do not lie on a grid."""
Point = tuple[int, ...]


class Grid:
    """Log rate over a full grid of sizes, interpolated linearly in log sizes.

    Work is a product of powers of the sizes, so log seconds are interpolated linearly too. A
    point that was not measured takes the rate of the measured point nearest in log sizes. Then,
    as in a curve, a larger size never takes less time: every point takes at least the seconds of
    each point that is no larger in any size.

    Args:
        rates: work a second at measured sizes.
        powers: power of each size in the work.

    Raises:
        InputError: sizes that span too large a grid.
    """

    def __init__(self, rates: dict[Point, float], powers: Sequence[int]) -> None:
        self.axes = [sorted({point[i] for point in rates}) for i in range(len(powers))]
        points = math.prod(len(axis) for axis in self.axes)
        if points > MOST_POINTS:
            allowed = f"measured kernels on a grid of at most {MOST_POINTS} sizes"
            raise InputError("profile", f"{points} grid points", allowed)
        log_times = {
            point: _log_work(point, powers) - math.log(_nearest_rate(point, rates))
            for point in product(*self.axes)
        }
        _raise_to_running_maximum(log_times, self.axes)
        self._log_rates = {p: _log_work(p, powers) - log_s for p, log_s in log_times.items()}

    def rate(self, sizes: Point) -> float:
        """Work a second at these sizes; outside the grid that of its edge."""
        corners = [_bracket(axis, size) for axis, size in zip(self.axes, sizes, strict=True)]
        total = 0.0
        for choice in product((0, 1), repeat=len(corners)):
            weight, point = 1.0, []
            for (low, high, fraction), side in zip(corners, choice, strict=True):
                weight *= fraction if side else 1 - fraction
                point.append(high if side else low)
            if weight:
                total += weight * self._log_rates[tuple(point)]
        return math.exp(total)


def _log_work(point: Point, powers: Sequence[int]) -> float:
    return sum(power * math.log(size) for size, power in zip(point, powers, strict=True))


def _nearest_rate(point: Point, rates: dict[Point, float]) -> float:
    """The rate measured nearest to ``point`` in log sizes; of equally near ones the slowest."""
    if point in rates:
        return rates[point]
    return min((_log_distance(point, other), rate) for other, rate in rates.items())[1]


def _log_distance(point: Point, other: Point) -> float:
    """Rounded, so that points that are equally far compare equal."""
    return round(math.dist([math.log(x) for x in point], [math.log(x) for x in other]), 9)


def _raise_to_running_maximum(values: dict[Point, float], axes: list[list[int]]) -> None:
    """Along every axis in turn, which makes it the maximum over all points below."""
    for i, axis in enumerate(axes):
        before = dict(zip(axis[1:], axis, strict=False))
        for point in product(*axes):  # ascending, so the point before has its maximum already
            if point[i] in before:
                lower = (*point[:i], before[point[i]], *point[i + 1 :])
                values[point] = max(values[point], values[lower])


def _bracket(axis: list[int], size: int) -> tuple[int, int, float]:
    """Neighbouring grid values and the log position between them, held at the edges."""
    if size <= axis[0]:
        return axis[0], axis[0], 0.0
    if size >= axis[-1]:
        return axis[-1], axis[-1], 0.0
    right = bisect.bisect_right(axis, size)
    low, high = axis[right - 1], axis[right]
    return low, high, math.log(size / low) / math.log(high / low)
