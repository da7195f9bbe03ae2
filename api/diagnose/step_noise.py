"""Noise of measured steps: median, 99th percentile, slow steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

WARM_UP = 2
"""Steps that start-up lengthens: compilation, allocation, first use of links."""
SLOW = 1.2
"""Multiple of the median above which a step is slow."""
MOST_SHOWN = 8


class TimedStep(NamedTuple):
    """Mean seconds over ``steps`` steps that end with ``step``."""

    step: int
    seconds: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNoise:
    """Spread of a run's steps.

    ``steps`` were read, the first ``left_out`` of them not counted. ``averaged``: steps of a line,
    whose mean is all that a log says. ``slow`` are those above ``SLOW`` medians, the slowest first.
    """

    steps: int
    left_out: int
    averaged: int
    mean_s: float
    p50_s: float
    p99_s: float
    slow: tuple[TimedStep, ...]

    @property
    def slow_s(self) -> float:
        """Seconds of a mean step above the median: what slow steps cost."""
        return self.mean_s - self.p50_s

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {**asdict(self), "slow": [item._asdict() for item in self.slow]}


def step_noise(lines: Sequence[TimedStep]) -> StepNoise:
    """The spread of a log's lines, the first ones left out where there are more.

    Args:
        lines: at least one.
    """
    warm = [line for line in lines if line.step > WARM_UP]
    if len(warm) == len(lines) and len(lines) > 2:  # a later line may begin a run again
        warm = list(lines[1:])
    kept = warm or list(lines)
    count = sum(line.steps for line in kept)
    mean_s = math.fsum(line.seconds * line.steps for line in kept) / count
    p50_s = _quantile(kept, 0.5)
    slow = [line for line in kept if line.seconds > SLOW * p50_s]
    return StepNoise(
        steps=count,
        left_out=sum(line.steps for line in lines) - count,
        averaged=max(line.steps for line in kept),
        mean_s=mean_s,
        p50_s=p50_s,
        p99_s=_quantile(kept, 0.99),
        slow=tuple(sorted(slow, key=lambda line: -line.seconds)[:MOST_SHOWN]),
    )


def _quantile(lines: Sequence[TimedStep], share: float) -> float:
    """The least value that ``share`` of the steps do not exceed (nearest rank)."""
    ordered = sorted(lines, key=lambda line: line.seconds)
    wanted = math.ceil(share * sum(line.steps for line in ordered))
    seen = 0
    for line in ordered:
        seen += line.steps
        if seen >= wanted:
            return line.seconds
    return ordered[-1].seconds
