"""Experts' rows in chunks on four ranks: exact however they are routed, and what is lowered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.plan_cases import Case
from ranks.expert_runs import GROUPED_V3, MIXTRAL, QWEN2, ExpertSizes, spread
from ranks.rank_pools import RankPool

from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.expert_pipelining import NAME, from_word

TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
BUBBLE = {"stages": 2, "kind": "zero_bubble", "micro_batch": 2}
GELU = Moe(experts=8, topk=2, ffn=96, activation="gelu_tanh")
FEW = Moe(experts=8, topk=1, ffn=16)


def wide(sizes: ExpertSizes, **moe: object) -> ExpertSizes:
    """The same model with wider layers, so that bookkeeping is small beside them."""
    own = replace(sizes.moe, **{"ffn": 96, "experts": 8, **moe})  # type: ignore[arg-type, type-var]
    return replace(sizes, hidden=64, ffn=160, vocab=512, blocks=2, moe=own)


def case(
    word: str,
    strategy: LayerStrategy,
    shard: str = "zero0",
    sizes: ExpertSizes = MIXTRAL,
    **fields: object,
) -> Case:
    shaped = Case(name=f"{word} ep{strategy.ep} {shard}", sizes=wide(sizes), seq_len=128)
    spread_case = spread(replace(shaped, **fields), strategy, shard)  # type: ignore[arg-type]
    value = from_word(word)
    strategies = tuple(
        with_value(s, NAME, value) if s.ep > 1 else s
        for s in spread_case.strategies  # type: ignore[union-attr]
    )
    return replace(spread_case, strategies=strategies)


CASES = (
    case("2/4", LayerStrategy(ep=4), sizes=QWEN2),
    case("4/1", LayerStrategy(ep=2), "zero1", replace(MIXTRAL, moe=GELU)),
    case("1/2", replace(TP2_SP, ep=2, recompute="full"), "zero3"),
    case("4/4", LayerStrategy(ep=2), "zero2", **BUBBLE),
    case("2/8", LayerStrategy(ep=2, etp=2), "zero1"),
    case("2/2:hierarchical@2", LayerStrategy(ep=4), "zero1"),
    case("1/4:hierarchical@2", LayerStrategy(ep=4, recompute="selective"), sizes=GROUPED_V3),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_in_chunks_is_the_reference(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, replace(case, seq_len=16))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_in_chunks_issues_what_is_lowered(four_ranks: RankPool, case: Case) -> None:
    check_lowering(four_ranks, case, job="ranks.expert_jobs:record")


@pytest.mark.parametrize("word", ["8/2", "2/4:hierarchical@2"])
def test_chunks_without_a_row_are_nothing(four_ranks: RankPool, word: str) -> None:
    few = replace(MIXTRAL, moe=FEW)
    shaped = Case(name="few", sizes=few, seq_len=2)
    spread_case = spread(shaped, LayerStrategy(ep=4))
    value = from_word(word)
    strategies = tuple(
        with_value(s, NAME, value) if s.ep > 1 else s
        for s in spread_case.strategies  # type: ignore[union-attr]
    )
    check_case(four_ranks, replace(spread_case, strategies=strategies))
