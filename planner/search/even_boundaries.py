"""Most even stage boundaries among plans of equal simulated time.

Stages that are not the bottleneck may trade layers at no cost, and a search keeps the first of such
plans that it meets. People read an uneven cut as a decision, so equal ones go to the most even.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..candidates.evaluator import Outcome
from .branch_and_bound import BranchAndBound
from .enumeration import ROUNDING

MAX_TRIES, MAX_SIMULATED_PASSES = 64, 100_000


def level_boundaries(search: BranchAndBound, best: Outcome) -> Outcome:
    """Move layers from full stages to others while the plan fits and takes no longer.

    With several chunks a stage, and for a stack with a rule of cuts, others are outside the space.

    Args:
        search: that found the plan.
        best: a feasible plan.
    """
    rule = search.request.stack.limits.layer_cut
    if best.decision.shape.chunks > 1 or rule != "any":
        return best
    tries = min(MAX_TRIES, MAX_SIMULATED_PASSES // best.decision.shape.passes)
    limit_s = best.step_time_s * (1 + ROUNDING)
    improves = True
    while improves:
        improves = False
        for boundaries in _levelled(best.decision.boundaries, best.chunk_blocks):
            if tries <= 0:
                return best
            tries -= 1
            moved = search.evaluator(best.decision._replace(boundaries=boundaries))
            if moved is not None and moved.feasible and moved.step_time_s <= limit_s:
                best, improves = moved, True
                break
    return best


def _levelled(boundaries: tuple[int, ...], blocks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Boundaries with one layer moved to a chunk of at least two fewer blocks, widest first."""
    pairs = [
        (blocks[j] - blocks[i], i, j)
        for i in range(len(blocks))
        for j in range(len(blocks))
        if blocks[i] - blocks[j] > 1
    ]
    for _, full, other in sorted(pairs):
        step, low, high = (-1, full, other) if full < other else (1, other, full)
        yield tuple(b + step if low < n <= high else b for n, b in enumerate(boundaries))
