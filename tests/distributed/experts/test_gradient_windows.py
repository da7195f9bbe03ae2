"""Gradients summed in windows of experts' exchanges: exact, and what is lowered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.plan_cases import Case
from ranks.expert_runs import MIXTRAL, ExpertSizes, spread
from ranks.rank_pools import RankPool
from toys.technique_ranks import TechniqueRankSuite

from shardwright.costmodel.techniques import TECHNIQUES as PRICES
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques import TECHNIQUES as VALUES
from shardwright.spec.techniques import expert_pipelining
from shardwright.spec.techniques.gradient_windows import NAME, from_word

TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")


def case(
    word: str,
    strategy: LayerStrategy,
    shard: str = "zero1",
    sizes: ExpertSizes = MIXTRAL,
    chunks: str = "2/4",
    **fields: object,
) -> Case:
    """A model of 8 wide experts a layer, with rows in chunks and sums in windows."""
    moe = replace(sizes.moe or Moe(experts=8, topk=2, ffn=96), ffn=96, experts=8)
    own = replace(sizes, hidden=64, ffn=160, vocab=512, blocks=3, moe=moe)
    shaped = Case(name=f"{word} ep{strategy.ep} {shard}", sizes=own, seq_len=128)
    shaped = replace(shaped, program=((NAME, from_word(word)),), **fields)  # type: ignore[arg-type]
    spread_case = spread(shaped, strategy, shard)
    value = expert_pipelining.from_word(chunks)
    strategies = tuple(
        with_value(s, expert_pipelining.NAME, value) if s.ep > 1 else s
        for s in spread_case.strategies  # type: ignore[union-attr]
    )
    return replace(spread_case, strategies=strategies)


class TestGradientWindows(TechniqueRankSuite):
    """On two ranks, which sum gradients of all but the experts."""

    values, prices, name = VALUES, PRICES, NAME
    record_job = "ranks.expert_jobs:record"
    cases = (
        case("fill", LayerStrategy(ep=2), ranks=2),
        case("48KiB/2:7KiB/3:0B", LayerStrategy(ep=2), "zero0", ranks=2),
    )
    sizes = cases[0].sizes


CASES = (
    case("64KiB", LayerStrategy(ep=4)),
    case("20KiB/1:fill", replace(TP2_SP, ep=2, recompute="full"), "zero1", chunks="1/2"),
    case("100KiB", LayerStrategy(ep=2), "zero1", replace(MIXTRAL, dense=1)),
    case("fill", LayerStrategy(ep=2), "zero0", stages=2, micro_batch=2),
    case("30KiB", LayerStrategy(ep=4), "zero1", chunks="2/2:hierarchical@2", dtype="bf16"),
)
"""Places that two ranks cannot have: experts' own sums, both levels, several stages."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_on_four_ranks_is_the_reference(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, replace(case, seq_len=16))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_four_ranks_issue_what_is_lowered(four_ranks: RankPool, case: Case) -> None:
    check_lowering(four_ranks, case, job="ranks.expert_jobs:record")
