"""Parameters copied in several chunks, and the ranks that sum their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ...spec.model.towers import shared_tables
from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import TABLE, bias_holders

TOKEN_TABLE = "tokens.weight"


class TiedGroup(NamedTuple):
    """Ranks that sum the gradient of a shared parameter.

    ``copies``: ranks of each stage in the group. Those of one stage hold equal gradients, so each
    contributes its fraction.
    """

    ranks: tuple[int, ...]
    copies: tuple[int, ...]

    def weight_of(self, rank: int) -> float:
        """Factor on a rank's gradient before the sum."""
        position, ends = self.ranks.index(rank), accumulate(self.copies)
        return 1 / next(n for n, end in zip(self.copies, ends, strict=True) if position < end)


def shared_parameters(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Stages with a copy of each shared parameter, by name.

    A vocabulary table is one parameter inside a chunk with the head; elsewhere every layer with
    one, and every chunk of blocks that share a bias, has its own copy.
    """
    if len(plan.program.stages) == 1:
        return {}
    stages_by_name = {}
    if tables := shared_tables(plan.model):
        stages = [
            number
            for number, stage in enumerate(plan.program.stages)
            if any(
                i in tables
                for parts in stage.virtual_stages
                for i, _, _ in plan.chunk_layers(parts)
            )
        ]
        stages_by_name[f"layers.{tables[0]}.{TOKEN_TABLE}"] = tuple(stages)
    for block, holders in bias_holders(plan).items():
        stages_by_name[f"layers.{block}.{TABLE}"] = tuple(sorted({stage for stage, _ in holders}))
    return stages_by_name


def tied_groups(
    plan: Plan, stages: Sequence[int], layout: Sequence[tuple[int, int]]
) -> list[TiedGroup]:
    """Groups that sum one parameter's gradient, in a fixed order.

    One rank of each stage where all are equally wide; else all holders, since one stage has more
    copies. ``stages`` hold the parameter; ``layout`` has their first ranks and rank counts.
    """
    ranges = [layout[number] for number in stages]
    strategy = plan.program.first_strategy
    equal_widths = len({count for _, count in ranges}) == 1
    parts = ranges[0][1] if equal_widths else strategy.weight_split * strategy.shard.optimizer
    return [
        TiedGroup(
            tuple(r for first, count in ranges for r in range(first + part, first + count, parts)),
            tuple(count // parts for _, count in ranges),
        )
        for part in range(parts)
    ]
