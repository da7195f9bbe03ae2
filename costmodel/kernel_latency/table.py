"""Kernel seconds from a machine profile: exact hit, then interpolation, then scaling.

Rates vary smoothly with the logarithm of the sizes, so tables hold log rates on a grid of log
sizes and are interpolated linearly between grid points. Outside the grid the nearest edge's
rate is held. Elementwise kernels are a curve over the bytes that they move; an operation that
was not measured takes the curve of an out-of-place addition.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from typing import Literal, NamedTuple

from ...spec.kernels import ATTENTIONS, MATMULS, Kernel
from ...spec.profile import KernelRow, MachineProfile

Source = Literal["measured", "learned", "analytic"]
GENERIC_OP = "add"


class Price(NamedTuple):
    """Seconds and where they come from."""

    time_s: float
    source: Source


class Curve:
    """Seconds over one size, increasing; log-log linear between points."""

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        best: dict[float, float] = {}
        for size, time_s in points:
            best[size] = min(time_s, best.get(size, math.inf))
        self.sizes = sorted(best)
        self.times_s: list[float] = []
        for size in self.sizes:  # a larger size never takes less time
            self.times_s.append(max(best[size], self.times_s[-1] if self.times_s else 0.0))

    def at(self, size: float) -> float:
        """Seconds at ``size``: the smallest point's below the curve, its last rate above."""
        if size <= self.sizes[0]:
            return self.times_s[0]
        if size >= self.sizes[-1]:
            return self.times_s[-1] * size / self.sizes[-1]
        right = bisect.bisect_right(self.sizes, size)
        low, high = self.sizes[right - 1], self.sizes[right]
        weight = math.log(size / low) / math.log(high / low)
        before, after = self.times_s[right - 1], self.times_s[right]
        return math.exp((1 - weight) * math.log(before) + weight * math.log(after))


class Grid:
    """Log rate over a full grid of sizes, interpolated linearly in log sizes."""

    def __init__(self, rates: dict[tuple[int, ...], float]) -> None:
        dimensions = len(next(iter(rates)))
        self.axes = [sorted({point[i] for point in rates}) for i in range(dimensions)]
        self._log_rates = {point: math.log(rate) for point, rate in rates.items()}
        self._fallback = min(self._log_rates.values())

    def rate(self, sizes: tuple[int, ...]) -> float:
        """Work a second at these sizes."""
        corners = [_bracket(axis, size) for axis, size in zip(self.axes, sizes, strict=True)]
        total = 0.0
        for choice in product((0, 1), repeat=len(corners)):
            weight, point = 1.0, []
            for (low, high, fraction), side in zip(corners, choice, strict=True):
                weight *= fraction if side else 1 - fraction
                point.append(high if side else low)
            if weight:
                total += weight * self._log_rates.get(tuple(point), self._fallback)
        return math.exp(total)


def _bracket(axis: list[int], size: int) -> tuple[int, int, float]:
    """Neighbouring grid values and the log position between them, held at the edges."""
    if size <= axis[0]:
        return axis[0], axis[0], 0.0
    if size >= axis[-1]:
        return axis[-1], axis[-1], 0.0
    right = bisect.bisect_right(axis, size)
    low, high = axis[right - 1], axis[right]
    return low, high, math.log(size / low) / math.log(high / low)


class KernelTable:
    """Prices kernels from the rows of one profile."""

    def __init__(self, profile: MachineProfile) -> None:
        self._exact = {
            (row.op, row.shape, row.dtype, row.traffic_bytes): row.time_s for row in profile.kernels
        }
        self._slowdown = profile.kernel_slowdown
        groups: dict[tuple[str, str], list[KernelRow]] = defaultdict(list)
        for row in profile.kernels:
            groups[row.op, row.dtype].append(row)
        self._grids = {key: _grid(rows) for key, rows in groups.items() if key[0] in _SHAPED}
        self._curves = {
            key: Curve((row.traffic_bytes, row.time_s) for row in rows)
            for key, rows in groups.items()
            if key[0] not in _SHAPED
        }

    def price(self, kernel: Kernel) -> Price | None:
        """Seconds of ``kernel`` in a step, or None where nothing comparable was measured."""
        alone_s = self._alone_s(kernel)
        return None if alone_s is None else Price(alone_s * self._slowdown, "measured")

    def _alone_s(self, kernel: Kernel) -> float | None:
        exact = self._exact.get((kernel.op, kernel.shape, kernel.dtype, kernel.traffic_bytes))
        if exact is not None:
            return exact
        if kernel.op in _SHAPED:
            grid = self._grids.get((kernel.op, kernel.dtype))
            return None if grid is None else _work(kernel) / grid.rate(_axes(kernel))
        curve = self._curves.get((kernel.op, kernel.dtype)) or self._curves.get(
            (GENERIC_OP, kernel.dtype)
        )
        return None if curve is None else curve.at(kernel.traffic_bytes)


_SHAPED = MATMULS | ATTENTIONS


def _work(kernel: Kernel) -> float:
    return float(max(kernel.flops, 1))


def _axes(kernel: Kernel) -> tuple[int, ...]:
    """The sizes that a shaped kernel's rate depends on."""
    if kernel.op in ATTENTIONS:
        batch, heads, _, seq, dim = kernel.shape
        return (batch * heads, seq, dim)
    return kernel.shape


def _grid(rows: list[KernelRow]) -> Grid:
    rates: dict[tuple[int, ...], float] = {}
    for row in rows:
        kernel = Kernel(row.op, row.shape, row.dtype, row.flops, row.traffic_bytes)
        axes = _axes(kernel)
        rates[axes] = max(_work(kernel) / row.time_s, rates.get(axes, 0.0))
    return Grid(rates)
