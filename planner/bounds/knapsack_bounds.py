"""Proven lower bounds and estimates of a pipeline shape's step time.

Let t_l be the minimum seconds of layer l's forward and backward of one micro-batch under any legal
strategy, c_l the minimum it adds to its stage's step. For stage s with layers S(s),

    T ≥ m · Σ_{S(s)} t + Σ_{s' < s} Σ_{S(s')} t    (fill, work, drain)
    T ≥ Σ_{S(s)} c

The first holds for GPipe and 1F1B. Over all partitions it is least when stage s+1 has 1 - 1/m of
the work of stage s: ``T ≥ t_1/(1 - (1 - 1/m)^p)`` with t_1 = Σ_l t_l. The second gives
``T ≥ Σ c / p``. All strategies must fit the p stages' memory together, so Σ t and Σ c are minima
over the
lower convex hull of (bytes, seconds) at the available bytes (the linear relaxation of the
knapsack), with one micro-batch in flight, the minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..dynamic_programming.layer_search import pareto_front
from ..space.search_space import PipelineShape
from ..tables.arrays import Floats
from ..tables.option_table import OptionTable

HULL_TOLERANCE = 1e-12
UNEVEN_PENALTY = 1.15
"""Estimates of shapes that only fit with uneven stages are this much worse."""


def lower_hull(bytes_: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Lower convex hull of points, by growing bytes and falling seconds."""
    kept = pareto_front(bytes_, seconds)
    hull: list[tuple[float, float]] = []
    for x, y in zip(bytes_[kept].tolist(), seconds[kept].tolist(), strict=True):
        while len(hull) > 1 and _above(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    points = np.array(hull)
    return points[:, 0], points[:, 1]


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0]) * (1 - HULL_TOLERANCE)


Hull = tuple[list[float], list[float]]


def hull_of(bytes_: Floats, seconds: Floats) -> Hull:
    """The lower hull as plain lists."""
    hull_bytes, hull_s = lower_hull(bytes_, seconds)
    return hull_bytes.tolist(), hull_s.tolist()


def fractional_knapsack(groups: Sequence[tuple[float, Hull]], budget_bytes: float) -> float:
    """Minimum seconds of all layers within a byte budget, layers divisible.

    Args:
        groups: (layers of a class, lower hull of its strategies' bytes and seconds).
        budget_bytes: bytes for all of them together.

    Returns:
        Seconds, infinite if even the smallest strategies do not fit.
    """
    steps: list[tuple[float, float, float]] = []
    total = used = 0.0
    for count, (bytes_, seconds) in groups:
        total += count * seconds[0]
        used += count * bytes_[0]
        for i in range(1, len(bytes_)):
            cost, gain = count * (bytes_[i] - bytes_[i - 1]), count * (seconds[i] - seconds[i - 1])
            steps.append((gain / cost, cost, gain))
    if used > budget_bytes:
        return float("inf")
    for slope, cost, gain in sorted(steps):
        room = budget_bytes - used
        if room <= 0:
            break
        total += gain if cost <= room else slope * room
        used += cost
    return total


class KnapsackBounds:
    """Bounds and estimates of the shapes that share stage width and micro-batches."""

    def __init__(self, tables: Sequence[tuple[int, OptionTable]]) -> None:
        self._tables = tables
        self._estimates: dict[float, list[tuple[float, Hull]]] = {}

    @cached_property
    def _middle(self) -> list[tuple[float, Hull]]:
        return [
            (n, hull_of(t.resident_bytes + t.kept_bytes, t.microbatch_s)) for n, t in self._tables
        ]

    @cached_property
    def _step(self) -> list[tuple[float, Hull]]:
        return [
            (n, hull_of(t.resident_bytes + t.kept_bytes, t.step_bound_s)) for n, t in self._tables
        ]

    def bound(self, shape: PipelineShape, capacity_bytes: float) -> float:
        """Proven lower bound on the simulated step of every plan of ``shape``.

        Args:
            shape: the pipeline shape.
            capacity_bytes: live bytes of one device.
        """
        budget = capacity_bytes * shape.stages
        step = fractional_knapsack(self._step, budget)
        m, p = shape.microbatches, shape.stages
        if not shape.fills_and_drains:
            return step / p
        return max(step / p, fractional_knapsack(self._middle, budget) / (1 - (1 - 1 / m) ** p))

    def estimate(
        self, shape: PipelineShape, capacity_bytes: float, in_flight: tuple[float, float]
    ) -> float:
        """Likely step time: even stages within memory, and the schedule's bubble.

        Args:
            shape: the pipeline shape.
            capacity_bytes: live bytes of one device.
            in_flight: micro-batches in flight on the first and on the last stage.
        """
        even = max(self._even_stage(shape, capacity_bytes, count) for count in in_flight)
        if even == float("inf"):  # uneven stages may still fit
            mean = sum(in_flight) / 2
            even = (
                UNEVEN_PENALTY
                * fractional_knapsack(self._hulls(mean), capacity_bytes * shape.stages)
                / shape.stages
            )
        blocks = max(n for n, _ in self._tables)
        share = blocks / shape.positions
        bubble = (shape.stages - 1) / (shape.chunks * shape.microbatches)
        return even * max(1.0, math.ceil(share) / share) * (1 + bubble)

    def _even_stage(self, shape: PipelineShape, capacity_bytes: float, in_flight: float) -> float:
        groups = [(n / shape.stages, hull) for n, hull in self._hulls(in_flight)]
        return fractional_knapsack(groups, capacity_bytes)

    def _hulls(self, in_flight: float) -> list[tuple[float, Hull]]:
        if in_flight not in self._estimates:
            self._estimates[in_flight] = [
                (n, hull_of(t.bytes_at(in_flight), t.step_estimate_s)) for n, t in self._tables
            ]
        return self._estimates[in_flight]
