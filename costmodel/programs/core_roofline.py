"""Roofline of a program on a core: each leaf's operations or traffic, whichever takes longer."""

from __future__ import annotations

from .leaf_features import CACHES_BYTES, traffic
from .nest import Program

OPERATIONS_PER_S, BYTES_PER_S, CALL_S = 1e10, 1e10, 1e-6
"""A nominal core; what a fit learns is the ratio to it."""
COSTS = (1.0, 1.0, 4.0, 10.0, 1.0, 1.0, 1.0, 4.0)
"""Cost of each of :data:`nest.OPERATIONS` in additions."""


def core_seconds(program: Program) -> float:
    """Seconds of a program's leaves one after another on the nominal core."""
    seconds = CALL_S
    for leaf in program.leaves:
        work = sum(n * c for n, c in zip(leaf.operations, COSTS, strict=True)) * leaf.points
        moved = traffic(leaf.accesses, leaf.loops, CACHES_BYTES[1])
        seconds += max(work / OPERATIONS_PER_S, moved / BYTES_PER_S)
    return seconds
