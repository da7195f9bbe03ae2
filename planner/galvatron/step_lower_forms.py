"""Galvatron's step time from below: linear forms in the seconds of its stages.

Its step is max(A, B, C) + max(0, max_i (r_i - Σ_{j<i} s_j)), where s_i are a stage's seconds, r_i
what reducing adds to them, A = Σ s + (m-1)·s_last, B = m·s_0, C = Σ_{i>0} s + (m+1-p)·s_0. Every
sum of a branch and a term of the maximum is linear; those without a negative factor are least
where each stage is, so stages can be bounded one by one. For at most two stages these forms are
the step time itself.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class LinearForm(NamedTuple):
    """Factors on each stage's seconds and on what a reduction adds to them."""

    plain: tuple[int, ...]
    reduce: tuple[int, ...]


@cache
def forms_of(stages: int, microbatches: int) -> tuple[LinearForm, ...]:
    """The forms that no step of ``stages`` stages and ``microbatches`` micro-batches is below."""
    m, p = microbatches, stages
    last = [1] * (p - 1) + [m]
    first = [m] + [0] * (p - 1)
    steady = [m + 1 - p] + [1] * (p - 1)
    found = []
    for branch in {tuple(last), tuple(first), tuple(steady)} if p > 1 else {(m,)}:
        found.append(LinearForm(branch, (0,) * p))
        for shown in range(p):
            plain = tuple(f - 1 if j < shown else f for j, f in enumerate(branch))
            if min(plain) >= 0:
                found.append(LinearForm(plain, tuple(int(j == shown) for j in range(p))))
    return tuple(sorted(found))
