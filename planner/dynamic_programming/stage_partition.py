"""Cutting the layers into pipeline stages, on time and memory together.

Interval dynamic programming: the best way to give the first j layers to the first s stages
ends with stage s holding layers i..j, so its bottleneck is the larger of the best for (s - 1,
i) and of the stage's own time within its own memory (later stages hold fewer micro-batches).
Among equal bottlenecks the smaller sum wins, since the other stages fill and drain.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..space.pipeline_shape import PipelineShape

StageSeconds = Callable[[int, int, int], float]
"""Seconds of stage s holding layers i..j-1; infinite where they do not fit."""

SPREAD = 0.35
"""Stages may differ from the even share of layers by this fraction, and by two layers."""


def partition(layers: int, stages: int, seconds: StageSeconds) -> list[int] | None:
    """Cut points c_0 = 0 < ... < c_stages = layers with the least bottleneck.

    Args:
        layers: layers to cut.
        stages: stages to give them to, in order.
        seconds: time of a stage with a range of layers.

    Returns:
        The cuts, None if no cut fits.
    """
    share = layers / stages
    least = max(1, math.floor(share * (1 - SPREAD)) - 2)
    most = min(layers, math.ceil(share * (1 + SPREAD)) + 2)
    best: list[dict[int, tuple[float, float, int]]] = [{0: (0.0, 0.0, 0)}]
    for stage in range(stages):
        best.append(_extend(best[stage], stage, stages, layers, (least, most), seconds))
    if layers not in best[stages]:
        return None
    boundaries = [layers]
    for stage in range(stages, 0, -1):
        boundaries.append(best[stage][boundaries[-1]][2])
    return boundaries[::-1]


def _extend(
    before: dict[int, tuple[float, float, int]],
    stage: int,
    stages: int,
    layers: int,
    sizes: tuple[int, int],
    seconds: StageSeconds,
) -> dict[int, tuple[float, float, int]]:
    """Best (bottleneck, sum, previous cut) of each cut after one more stage."""
    left = stages - stage - 1
    found: dict[int, tuple[float, float, int]] = {}
    for start, (bottleneck, total, _) in before.items():
        for size in range(sizes[0], sizes[1] + 1):
            stop = start + size
            if stop > layers - left or (left == 0 and stop != layers):
                continue
            own = seconds(stage, start, stop)
            if math.isinf(own):
                continue
            value = (max(bottleneck, own), total + own, start)
            if stop not in found or value < found[stop]:
                found[stop] = value
    return found


def even_boundaries(layers: int, shape: PipelineShape) -> list[int]:
    """Cut points of the chunks of a shape, whose sizes differ by at most one layer.

    Where stages hold several chunks the earlier ones have a layer more, so that no stage of a V,
    which holds an early and a late one, has two.
    """
    parts = shape.positions
    if shape.chunks > 1:
        return [-(-i * layers // parts) for i in range(parts + 1)]
    return [round(i * layers / parts) for i in range(parts + 1)]
