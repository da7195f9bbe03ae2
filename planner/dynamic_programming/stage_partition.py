"""Stage partition by interval dynamic programming, on time and memory together.

The best partition of the first j layers into s stages ends with stage s holding layers i..j: its
bottleneck is the maximum of the best for (s - 1, i) and the stage's own time within its own memory
(later stages hold fewer micro-batches). Among equal bottlenecks the smaller sum wins, since the
other stages fill and drain.
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
    """Boundaries of minimum bottleneck, c_0 = 0 to c_stages = layers.

    Returns:
        None if none fit.
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
    """Best (bottleneck, sum, previous boundary) of each boundary after one more stage."""
    remaining = stages - stage - 1
    best: dict[int, tuple[float, float, int]] = {}
    for start, (bottleneck, total, _) in before.items():
        for size in range(sizes[0], sizes[1] + 1):
            stop = start + size
            if stop > layers - remaining or (remaining == 0 and stop != layers):
                continue
            stage_s = seconds(stage, start, stop)
            if math.isinf(stage_s):
                continue
            value = (max(bottleneck, stage_s), total + stage_s, start)
            if stop not in best or value < best[stop]:
                best[stop] = value
    return best


def even_boundaries(layers: int, shape: PipelineShape) -> list[int]:
    """Even boundaries of the chunks, sizes within one layer.

    With several chunks a stage the earlier ones hold the extra layers, so that no stage of a V,
    with an early and a late chunk, has two.
    """
    parts = shape.positions
    if shape.chunks > 1:
        return [-(-i * layers // parts) for i in range(parts + 1)]
    return [round(i * layers / parts) for i in range(parts + 1)]
