"""The best windows of few documents, by a mixed-integer program over all their subsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pulp


def subset_values(lengths: Sequence[int], vectors: Any, size: int) -> tuple[Any, Any]:
    """Subsets that fit a window, and the sum of each one's pairs' cosines."""
    rows = len(lengths)
    members = (np.arange(1, 1 << rows)[:, None] >> np.arange(rows)) & 1
    members = members[members @ np.asarray(lengths) <= size]
    sums = members @ vectors
    own = members @ np.sum(vectors**2, axis=1)
    return members, (np.sum(sums**2, axis=1) - own) / 2


def best_likeness(lengths: Sequence[int], vectors: Any, size: int, count: int) -> float:
    """The greatest likeness of all documents in ``count`` windows; -inf where they do not fit."""
    members, values = subset_values(lengths, vectors, size)
    program = pulp.LpProblem("windows", pulp.LpMaximize)
    taken = [pulp.LpVariable(f"s{n}", cat=pulp.LpBinary) for n in range(len(members))]
    program += pulp.lpSum(float(v) * x for v, x in zip(values, taken, strict=True))
    for row in range(len(lengths)):
        program += pulp.lpSum(taken[n] for n in np.flatnonzero(members[:, row])) == 1
    program += pulp.lpSum(taken) <= count
    program.solve(pulp.HiGHS(msg=False, threads=1))
    if pulp.LpStatus[program.status] != "Optimal":
        return float("-inf")
    return float(pulp.value(program.objective))
