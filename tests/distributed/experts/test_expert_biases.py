"""Experts with biases on four ranks: the single-process run, and what is lowered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.plan_cases import Case
from ranks.expert_runs import MIXTRAL, ExpertSizes, spread
from ranks.rank_pools import RankPool

from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.strategy import LayerStrategy

TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
GELU = Moe(experts=4, topk=2, ffn=96, activation="gelu_tanh", bias=True)
GATED = Moe(experts=8, topk=2, ffn=96, bias=True, router_bias=True, shared_ffn=64, latent=48)


def case(
    name: str, moe: Moe, strategy: LayerStrategy, shard: str = "zero0", **fields: object
) -> Case:
    """A model of wide layers whose experts have biases."""
    sizes: ExpertSizes = replace(MIXTRAL, hidden=64, ffn=160, vocab=512, blocks=2, moe=moe)
    shaped = Case(name=name, sizes=sizes, seq_len=128)
    return spread(replace(shaped, **fields), strategy, shard)  # type: ignore[arg-type]


CASES = (
    case("ep4", GELU, LayerStrategy(ep=4)),
    case("ep2 etp2", GATED, LayerStrategy(ep=2, etp=2), "zero1"),
    case("ep2 zero2", GATED, LayerStrategy(ep=2), "zero2"),
    case("tp2", GELU, replace(TP2_SP, ep=1, etp=2, recompute="full"), "zero3"),
    case("zero bubble", GELU, LayerStrategy(ep=2), stages=2, kind="zero_bubble", micro_batch=2),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_with_biases_is_the_reference(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, replace(case, seq_len=16))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_with_biases_issues_what_is_lowered(four_ranks: RankPool, case: Case) -> None:
    check_lowering(four_ranks, case, job="ranks.expert_jobs:record")
