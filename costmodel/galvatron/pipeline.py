"""Galvatron's step time from the seconds of its stages.

With s_i the seconds of stage i for a micro-batch, m micro-batches and p stages,

    T = max(Σ s + (m-1)·s_last, max(n·s_0, Σ_{i>0} s) + (m+1-p)·s_0) + E,    n = min(p, m) - 1

where E = max(0, max_i (c_i - Σ_{j≤i} s_j)) is the exposed part of the last gradient reduction: c_i
are the seconds of the stage's layers (without embedding and head) with it. Middle stages count in
sums only, so their sizes are not searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class StageTime(NamedTuple):
    """Seconds of a stage for one micro-batch, and a gradient reduction's addition.

    ``reduce_s`` is relative to ``plain_s``, and negative where embedding and head, which reduce
    nothing here, outweigh the reduction.
    """

    plain_s: float
    reduce_s: float


def step_seconds(stages: Sequence[StageTime], microbatches: int) -> float:
    """Seconds of a step of at least as many micro-batches as stages."""
    times = [stage.plain_s for stage in stages]
    return work_seconds(times, microbatches) + exposed_seconds(stages)


def work_seconds(times: Sequence[float], microbatches: int) -> float:
    """Seconds of a step without reduction: the formula's first term."""
    total, first, last = sum(times), times[0], times[-1]
    filling = (min(len(times), microbatches) - 1) * first
    steady = first * max(0, microbatches + 1 - len(times))
    return max(total + (microbatches - 1) * last, max(filling, total - first) + steady)


def exposed_seconds(stages: Sequence[StageTime]) -> float:
    """Seconds of reduction not hidden by other stages' work."""
    before = accumulate((stage.plain_s for stage in stages), initial=0.0)
    return max(0.0, *(stage.reduce_s - s for stage, s in zip(stages, before, strict=False)))
