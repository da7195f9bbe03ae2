"""Partition of the layers into stages of different rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from ..dynamic_programming.stage_partition import StageSeconds

SPREAD = 0.35
"""A boundary may lie off its even position by this fraction of a share, and by three layers."""


def uneven_partition(
    layers: int, rates: Sequence[float], seconds: StageSeconds
) -> list[int] | None:
    """Boundaries of minimum bottleneck, among equals minimum sum.

    Args:
        layers: number of layers.
        rates: work of each stage a second, in any unit.
        seconds: time of a stage with a range of layers, infinite if they do not fit.

    Returns:
        c_0 = 0 < ... < c_stages = layers; None if none within the spread fit.
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
        following: dict[int, tuple[float, float, tuple[int, ...]]] = {}
        for stop in range(lowest, highest + 1):
            for start, (bottleneck, spent, boundaries) in best.items():
                stage_s = seconds(stage, start, stop) if start < stop else math.inf
                if math.isinf(stage_s):
                    continue
                value = (max(bottleneck, stage_s), spent + stage_s, (*boundaries, stop))
                if stop not in following or value < following[stop]:
                    following[stop] = value
        best = following
    return list(best[layers][2]) if layers in best else None


def weighted_boundaries(layers: int, weights: Sequence[float]) -> list[int] | None:
    """Boundaries in proportion to weights, at least a layer each."""
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
