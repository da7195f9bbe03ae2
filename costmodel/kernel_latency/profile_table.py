"""Kernel seconds from a machine profile, interpolated between measured points.

Rates of products vary smoothly with log sizes, so they lie on a grid of these. Elementwise kernels
are a curve over moved bytes. At a measured size both give its own time, unless a smaller one took
longer: a larger one never takes less.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

from ...spec.cluster.machine_profile import KernelRow, MachineProfile
from ...spec.report.work_items import ATTENTIONS, MATMULS, SCANS, Kernel
from .grid import MOST_POINTS, Grid, grid_points

Source = Literal["measured", "learned", "analytic"]
GENERIC_OP = "add"
"""Proxy, as an analytic price, for an unmeasured elementwise operation."""
GridKey = tuple[str, str, str]
"""Operation, pattern of its sizes, format."""


class Latency(NamedTuple):
    """Seconds and their source."""

    time_s: float
    source: Source


class Curve:
    """Seconds over one size, increasing; log-log linear between points."""

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        fastest: dict[float, float] = {}
        for size, time_s in points:
            fastest[size] = min(time_s, fastest.get(size, math.inf))
        self.sizes = sorted(fastest)
        self.times_s: list[float] = []
        for size in self.sizes:  # a larger size never takes less time
            self.times_s.append(max(fastest[size], self.times_s[-1] if self.times_s else 0.0))

    def at(self, size: float) -> float:
        """Seconds at ``size``, at least the smallest point's.

        Above the curve its last rate holds.
        """
        if size <= self.sizes[0]:
            return self.times_s[0]
        if size >= self.sizes[-1]:
            return self.times_s[-1] * size / self.sizes[-1]
        right = bisect.bisect_right(self.sizes, size)
        low, high = self.sizes[right - 1], self.sizes[right]
        weight = math.log(size / low) / math.log(high / low)
        before, after = self.times_s[right - 1], self.times_s[right]
        return math.exp((1 - weight) * math.log(before) + weight * math.log(after))


class KernelTable:
    """Price kernels from the rows of one profile.

    Args:
        profile: the rows, and ``slowdown``: a kernel's seconds in a step over those alone.
        scattered: sizes may span too large a grid; such kernels are left to the residual.
    """

    def __init__(self, profile: MachineProfile, scattered: bool | None = None) -> None:
        if scattered is None:
            scattered = profile.residual is not None
        self.slowdown = profile.kernel_slowdown
        self._timed = {(row.op, row.shape, row.dtype) for row in profile.kernels}
        shaped: dict[GridKey, list[KernelRow]] = defaultdict(list)
        others: dict[tuple[str, str], list[KernelRow]] = defaultdict(list)
        for row in profile.kernels:
            if row.op not in _SHAPED:
                others[row.op, row.dtype].append(row)
            for pattern in _patterns(row.op, row.shape):
                shaped[row.op, pattern, row.dtype].append(row)
        self._grids = {
            key: _grid(rows)
            for key, rows in shaped.items()
            if not scattered or grid_points(_rates(rows)) <= MOST_POINTS
        }
        self._curves = {
            key: Curve((row.traffic_bytes, row.time_s) for row in rows)
            for key, rows in others.items()
        }

    def has(self, kernel: Kernel) -> bool:
        """True if this very kernel was timed."""
        return (kernel.op, kernel.shape, kernel.dtype) in self._timed

    def price(self, kernel: Kernel) -> Latency | None:
        """Seconds of ``kernel`` in a step; None if nothing comparable was measured."""
        if kernel.op in _SHAPED:
            return self._shaped(kernel)
        if kernel.op in SCANS:  # time follows products, not bytes alone
            return None
        own_curve = self._curves.get((kernel.op, kernel.dtype))
        curve = own_curve or self._curves.get((GENERIC_OP, kernel.dtype))
        if curve is None:
            return None
        time_s = curve.at(kernel.traffic_bytes) * self.slowdown
        return Latency(time_s, "measured" if own_curve else "analytic")

    def _shaped(self, kernel: Kernel) -> Latency | None:
        for pattern in _patterns(kernel.op, kernel.shape):
            grid = self._grids.get((kernel.op, pattern, kernel.dtype))
            if grid is not None:
                time_s = _work(kernel.flops) / grid.rate(_sizes(kernel.op, kernel.shape))
                return Latency(time_s * self.slowdown, "measured")
        return None


_SHAPED = MATMULS | ATTENTIONS


def _work(flops: int) -> float:
    return float(max(flops, 1))


def _patterns(op: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Size patterns of a shaped kernel, each with its own grid.

    Unfused attention's products are (batch, seq, dim, seq) and (batch, seq, seq, dim), so three
    sizes make a full grid; with equal seq and dim both hold.
    """
    if op != "batched_matmul":
        return ("all",) if op in _SHAPED else ()
    _, m, k, n = shape
    return ("scores",) * (m == n) + ("mix",) * (m == k)


def _sizes(op: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes that set the rate: (m, k, n) or (batch, seq, dim)."""
    if op in ATTENTIONS:
        batch, heads, _, seq, dim = shape
        return (batch * heads, seq, dim)
    if op == "batched_matmul":
        batch, m, k, n = shape
        return (batch, m, k if m == n else n)
    return shape


def _rates(rows: list[KernelRow]) -> dict[tuple[int, ...], float]:
    rates: dict[tuple[int, ...], float] = {}
    for row in rows:
        sizes = _sizes(row.op, row.shape)
        rates[sizes] = max(_work(row.flops) / row.time_s, rates.get(sizes, 0.0))
    return rates


def _grid(rows: list[KernelRow]) -> Grid:
    powers = (
        (1, 1, 1) if rows[0].op == "matmul" else (1, 2, 1)
    )  # exponents of the sizes in the FLOPs
    return Grid(_rates(rows), powers)
