"""Cutting the layers into stages that get different amounts of work done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from ..dynamic_programming.stage_partition import StageSeconds

SPREAD = 0.35
"""A cut may lie off its even place by this fraction of a stage's share, and by three layers."""


def uneven_partition(
    layers: int, rates: Sequence[float], seconds: StageSeconds
) -> list[int] | None:
    """Cut points with the least bottleneck, among equals the least sum.

    Args:
        layers: layers to cut.
        rates: what each stage gets done in a second, in any unit.
        seconds: time of a stage with a range of layers, infinite where they do not fit.

    Returns:
        The cuts c_0 = 0 < ... < c_stages = layers, None if no cut within the spread fits.
    """
    stages = len(rates)
    if stages > layers:
        return None
    total = sum(rates)
    even = [layers * done / total for done in accumulate(rates)]
    best: dict[int, tuple[float, float, tuple[int, ...]]] = {0: (0.0, 0.0, (0,))}
    for stage in range(stages):
        left = stages - stage - 1
        room = SPREAD * max(layers * rates[stage] / total, layers / stages) + 3
        lowest = max(stage + 1, math.floor(even[stage] - room))
        highest = min(layers - left, math.ceil(even[stage] + room))
        if not left:
            lowest = highest = layers
        found: dict[int, tuple[float, float, tuple[int, ...]]] = {}
        for stop in range(lowest, highest + 1):
            for start, (bottleneck, spent, boundaries) in best.items():
                own = seconds(stage, start, stop) if start < stop else math.inf
                if math.isinf(own):
                    continue
                value = (max(bottleneck, own), spent + own, (*boundaries, stop))
                if stop not in found or value < found[stop]:
                    found[stop] = value
        best = found
    return list(best[layers][2]) if layers in best else None


def weighted_boundaries(layers: int, weights: Sequence[float]) -> list[int] | None:
    """Cut points of runs in proportion to weights, each of one layer at least."""
    parts = len(weights)
    if parts > layers:
        return None
    total, done = sum(weights), 0.0
    boundaries = [0]
    for number, weight in enumerate(weights):
        done += weight
        near = round(layers * done / total)
        boundaries.append(max(boundaries[-1] + 1, min(near, layers - (parts - number - 1))))
    return boundaries
