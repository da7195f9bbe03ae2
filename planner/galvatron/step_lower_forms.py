"""Lower bounds of Galvatron's step time, linear in its stages' seconds.

Its step is max(A, B, C) + max(0, max_i (r_i - Σ_{j<i} s_j)), with s_i a stage's seconds, r_i those
of its reduction, A = Σ s + (m-1)·s_last, B = m·s_0, C = Σ_{i>0} s + (m+1-p)·s_0. Every sum of a
branch and a term of the maximum is linear; those without a negative factor have their minimum
where each stage has, so stages can be bounded one by one. For at most two stages these forms are
the step time itself.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class LinearForm(NamedTuple):
    """Factors on each stage's seconds and on its reduction."""

    plain: tuple[int, ...]
    reduce: tuple[int, ...]


@cache
def forms_of(stages: int, microbatches: int) -> tuple[LinearForm, ...]:
    """Lower forms of steps with these stages and micro-batches."""
    m, p = microbatches, stages
    last = [1] * (p - 1) + [m]
    first = [m] + [0] * (p - 1)
    steady = [m + 1 - p] + [1] * (p - 1)
    forms = []
    for branch in {tuple(last), tuple(first), tuple(steady)} if p > 1 else {(m,)}:
        forms.append(LinearForm(branch, (0,) * p))
        for exposed in range(p):
            plain = tuple(f - 1 if j < exposed else f for j, f in enumerate(branch))
            if min(plain) >= 0:
                forms.append(LinearForm(plain, tuple(int(j == exposed) for j in range(p))))
    return tuple(sorted(forms))
