"""Which ranks of the first and the last stage hold the same part of a tied weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..spec.plan import Plan


class TiedGroup(NamedTuple):
    """Ranks that sum the gradient of a tied weight.

    ``copies``: how many ranks of each of the two stages are in the group. They hold equal
    gradients already, so each gives its part of one.
    """

    ranks: tuple[int, ...]
    copies: tuple[int, int]

    def weight_of(self, rank: int) -> float:
        """What a rank multiplies its gradient with before the sum."""
        return 1 / self.copies[self.ranks.index(rank) >= self.copies[0]]


def tied_groups(plan: Plan, layout: Sequence[tuple[int, int]]) -> list[TiedGroup]:
    """The groups, in one order.

    Two ranks each where both stages are equally wide; else all that hold a part, for one stage
    has more copies of it than the other.

    Args:
        plan: of a model with tied embeddings, on several stages.
        layout: first rank and number of ranks of each stage.
    """
    (first, count), (last_first, last_count) = layout[0], layout[-1]
    strategy = plan.program.first_strategy
    parts = count if count == last_count else strategy.weight_split * strategy.shard.optimizer
    return [
        TiedGroup(
            (
                *range(first + part, first + count, parts),
                *range(last_first + part, last_first + last_count, parts),
            ),
            (count // parts, last_count // parts),
        )
        for part in range(parts)
    ]
