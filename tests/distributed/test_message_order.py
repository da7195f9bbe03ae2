"""A gradient leaves for the stage before it ahead of its pass's last reduction."""

from __future__ import annotations

import pytest
from generators.plan_cases import Case, sharded
from ranks.rank_pools import RankPool

KINDS = {"zero0": "all_reduce", "zero1": "reduce_scatter", "zero3": "reduce_scatter"}


@pytest.mark.parametrize("level", KINDS)
def test_the_last_stage_sends_before_its_first_layer_reduces(
    four_ranks: RankPool, level: str
) -> None:
    case = Case(name=level, stages=2, boundaries=(3,), strategies=sharded(level, 2))
    payload = {"plan": case.plan().to_document()}
    first, _, last, _ = four_ranks.run("ranks.rank_jobs:collective_order", payload)
    reduce = KINDS[level]
    order = [kind for kind in last if kind in ("send", reduce)]
    assert order[-4:] == [reduce, reduce, "send", reduce]
    assert "send" not in first[-3:]


@pytest.mark.parametrize("level", ["zero0", "zero3"])
def test_one_stage_reduces_as_ever(four_ranks: RankPool, level: str) -> None:
    case = Case(name=level, strategies=sharded(level, 4))
    payload = {"plan": case.plan().to_document()}
    order = four_ranks.run("ranks.rank_jobs:collective_order", payload)[0]
    assert order.count(KINDS[level]) == case.layer_count * (1 if level == "zero0" else 2)
    assert "send" not in order
