"""Biases of relative positions against their definition, and what plans may do with them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from generators.family_cases import FamilyCase, t5

from shardwright.executor.models.positions import MAX_DISTANCE, score_bias
from shardwright.executor.train.job import require_executable
from shardwright.spec.errors import InputError
from shardwright.spec.plan.relative_position_bias import bias_holders, table_blocks, table_copies
from shardwright.spec.strategy import LayerStrategy

MODEL = t5()


def _bucket(distance: int, side: int) -> int:
    exact = max(1, side // 2)
    if distance < exact:
        return distance
    share = math.log(distance / exact) / math.log(MAX_DISTANCE / exact)
    return min(side - 1, exact + int(share * (side - exact)))


@pytest.mark.parametrize("buckets", [6, 8, 32])
@pytest.mark.parametrize("both", [True, False])
def test_pairs_fall_into_the_buckets_of_the_definition(buckets: int, both: bool) -> None:
    table = torch.arange(buckets * 2.0).view(buckets, 2)
    found = score_bias(table, 150, 140, both)
    side = buckets // 2 if both else buckets
    for query in range(0, 150, 7):
        for key in range(140 if both else min(query + 1, 140)):
            later = side if both and key > query else 0
            expected = _bucket(abs(query - key), side) + later
            assert found[query, key].tolist() == table[expected].tolist()


def test_every_block_of_a_tower_has_one_table() -> None:
    assert table_blocks(MODEL) == {1: 1, 2: 1, 5: 5, 6: 5}
    assert table_copies(MODEL, range(8)) == {}
    (copy,) = table_copies(MODEL, (6, 7)).values()
    assert copy.attention == replace(MODEL.layers()[5].attention, mask="causal")  # type: ignore[union-attr,type-var]


def test_a_cut_inside_a_tower_copies_its_table() -> None:
    case = FamilyCase(name="", model=MODEL, ranks=2, stages=2, micro_batch=2, flash=False)
    assert bias_holders(replace(case, boundaries=(4,)).plan()) == {}
    assert bias_holders(replace(case, boundaries=(2,)).plan()) == {1: ((0, 1), (1, 2))}
    assert bias_holders(replace(case, boundaries=(6,)).plan()) == {5: ((0, 5), (1, 6))}


def test_blocks_that_share_a_bias_run_with_one_tp() -> None:
    strategies = [LayerStrategy(tp=2)] * 8
    case = FamilyCase(name="", model=MODEL, ranks=2, strategies=strategies)
    require_executable(case.plan())
    strategies[2] = LayerStrategy()
    with pytest.raises(InputError, match="share a bias of relative positions with tp 1 and 2"):
        require_executable(case.plan())
