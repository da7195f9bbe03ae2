"""Which ranks of several stages hold the same part of a vocabulary table that layers share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ..spec.plan import Plan
from ..spec.towers import shared_tables


class TiedGroup(NamedTuple):
    """Ranks that sum the gradient of a shared table.

    ``copies``: how many ranks of each of the stages are in the group. Those of one stage hold
    equal gradients already, so each gives its part of one.
    """

    ranks: tuple[int, ...]
    copies: tuple[int, ...]

    def weight_of(self, rank: int) -> float:
        """What a rank multiplies its gradient with before the sum."""
        place = self.ranks.index(rank)
        ends = accumulate(self.copies)
        return 1 / next(n for n, end in zip(self.copies, ends, strict=True) if place < end)


def holding_stages(plan: Plan) -> list[int]:
    """The stages with a copy of the shared table, in order; empty where no layers share one."""
    tables = set(shared_tables(plan.model))
    return [
        number
        for number, stage in enumerate(plan.program.stages)
        if any(
            index in tables
            for parts in stage.virtual_stages
            for index, _, _ in plan.chunk_layers(parts)
        )
    ]


def tied_groups(plan: Plan, layout: Sequence[tuple[int, int]]) -> list[TiedGroup]:
    """The groups, in one order.

    One rank of each stage where all are equally wide; else all that hold a part, for one stage
    has more copies of it than another.

    Args:
        plan: of a model whose layers share a table, on several stages.
        layout: first rank and number of ranks of each stage.
    """
    held = [layout[number] for number in holding_stages(plan)]
    strategy = plan.program.first_strategy
    alike = len({count for _, count in held}) == 1
    parts = held[0][1] if alike else strategy.tp * strategy.shard.optimizer
    return [
        TiedGroup(
            tuple(r for first, count in held for r in range(first + part, first + count, parts)),
            tuple(count // parts for _, count in held),
        )
        for part in range(parts)
    ]
