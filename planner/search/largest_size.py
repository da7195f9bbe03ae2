"""Largest feasible size: bracket, bisect, refine.

Sizes are multiples of a step: doubled until one does not fit, then bisected; each finer step
refines the last bracket. That is exact if multiples of one step fit up to some size and none
beyond. They do: let a plan fit a size, and all its divisors of the size divide the step. At a
smaller multiple of the step the same decisions are legal, and no tensor is larger, so it fits,
too. (A plan with a divisor that does not divide the step may fit an isolated size, found only if
tried: ``tried`` lists the sizes.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...spec.limits import MAX_SAMPLES

Fits = Callable[[int], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Bracket: ``size`` fits; ``beyond``, the next multiple, does not.

    ``size`` 0: nothing fits. ``beyond`` None: the size met its limit. ``tried``: answers by size.
    """

    size: int
    beyond: int | None
    tried: dict[int, bool]


def largest_fitting(
    fits: Fits, steps: Sequence[int], most: int = MAX_SAMPLES, begin: int = 0
) -> Bracket:
    """Largest feasible size.

    Args:
        fits: feasibility of a size.
        steps: coarse to fine, each a multiple of the next.
        most: maximum size.
        begin: first size; affects the work, not the answer.
    """
    tried: dict[int, bool] = {}

    def try_size(size: int) -> bool:
        if size not in tried:
            tried[size] = size <= most and fits(size)
        return tried[size]

    low, high = 0, max(1, min(begin, most) // steps[0]) * steps[0]
    while high <= most and try_size(high):
        low, high = high, 2 * high
    for step in steps:
        low, high = _bisected(try_size, step, low, high)
    beyond = high if high <= most else None
    return Bracket(size=low, beyond=beyond, tried={n: ok for n, ok in tried.items() if n <= most})


def _bisected(fits: Fits, step: int, low: int, high: int) -> tuple[int, int]:
    below, above = low // step, high // step
    while above - below > 1:
        middle = (below + above) // 2
        if fits(middle * step):
            below = middle
        else:
            above = middle
    return below * step, above * step


def finer_steps(whole: int, grain: int) -> list[int]:
    """``whole`` times ``grain``, divided by prime factors down to ``grain``."""
    steps, rest, factor = [whole * grain], whole, 2
    while rest > 1:
        while rest % factor == 0:
            rest //= factor
            steps.append(rest * grain)
        factor += 1
    return steps
