"""Mixtures of experts and latent attention on ranks, against the single-process reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.run_checks import check_case
from generators.plan_cases import Case, sharded
from generators.random_actions import random_order
from ranks.expert_runs import (
    DEEPSEEK,
    DIRECT_LATENT,
    GROUPED_V2,
    GROUPED_V3,
    LATENT_DENSE,
    MIXTRAL,
    QWEN2,
    QWEN3,
    spread,
)
from ranks.rank_pools import RankPool

from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.parallel.rank_groups import expert_secondary
from shardwright.spec.strategy import LayerStrategy

TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
BASE = Case(name="", sizes=MIXTRAL)
FEW = replace(BASE, sizes=replace(MIXTRAL, moe=Moe(experts=8, topk=1, ffn=16)), seq_len=2)
DEEP = Case(name="", sizes=DEEPSEEK)


def named(name: str, case: Case, strategy: LayerStrategy, shard: str = "zero0") -> Case:
    return spread(replace(case, name=name), strategy, shard)


def each_ep() -> list[Case]:
    return [
        named(f"{model} ep{ep} {level}", replace(BASE, sizes=sizes), LayerStrategy(ep=ep), level)
        for model, sizes in (("mixtral", MIXTRAL), ("qwen3", QWEN3), ("qwen2", QWEN2))
        for ep in (1, 2, 4)
        for level in (("zero0", "zero1", "zero3") if model == "mixtral" else ("zero2",))
    ]


def split_backward() -> list[Case]:
    """Experts whose weight gradients wait: of every way to spread them, gates and groups."""
    bubble = replace(BASE, stages=2, kind="zero_bubble", micro_batch=2)
    v_shape = replace(bubble, chunks=2, kind="zbv")
    pairs = replace(v_shape, kind="dualpipe", global_batch=12)
    return [
        named("zero_bubble ep2", bubble, LayerStrategy(ep=2)),
        named("zero_bubble ep2 bf16 zero2", replace(bubble, dtype="bf16"), LayerStrategy(ep=2),
              "zero2"),
        named("zero_bubble etp2 zero3", bubble, LayerStrategy(etp=2), "zero3"),
        named("zero_bubble of shared tokens", replace(bubble, sizes=QWEN2),
              LayerStrategy(tp=2, etp=2, recompute="full")),
        named("zero_bubble without a token", replace(bubble, sizes=FEW.sizes, seq_len=2),
              LayerStrategy(ep=2)),
        named("zbv shared experts tp2 sp ep2", replace(v_shape, sizes=QWEN2),
              replace(TP2_SP, ep=2)),
        named("zbv deepseek ep2 zero3", replace(v_shape, sizes=DEEPSEEK), LayerStrategy(ep=2),
              "zero3"),
        named("dualpipe groups ep2 zero2", replace(pairs, sizes=GROUPED_V3), LayerStrategy(ep=2),
              "zero2"),
        named("dualpipe deepseek tp2 sp", replace(pairs, sizes=DEEPSEEK),
              replace(TP2_SP, ep=2, recompute="full")),
    ]  # fmt: skip


MIXED = (
    sharded("zero1", 4),
    TP2_SP,
    LayerStrategy(ep=4),
    LayerStrategy(tp=2, sequence_parallel="megatron", ep=2, recompute="full"),
    LayerStrategy(tp=2),
)
CASES = [
    *each_ep(),
    named("hsdp", BASE, LayerStrategy(ep=2), "hsdp:2"),
    named("hpz", BASE, LayerStrategy(ep=2), "hpz:2"),
    named("tp2 sp ep2", BASE, replace(TP2_SP, ep=2)),
    named("tp2 sp ep2 zero3", BASE, replace(TP2_SP, ep=2), "zero3"),
    named("tp2 sp ep4", BASE, replace(TP2_SP, ep=4)),
    named("tp4 sp ep2", replace(BASE, sizes=replace(MIXTRAL, kv_heads=4)),
          LayerStrategy(tp=4, sequence_parallel="megatron", ep=2)),
    named("tp2 sp ep1", BASE, TP2_SP),
    named("ep2 etp2", BASE, LayerStrategy(ep=2, etp=2)),
    named("etp2", BASE, LayerStrategy(etp=2), "zero1"),
    named("tp2 sp ep2 etp2", BASE, replace(TP2_SP, ep=2, etp=2)),
    named("tp2 sp etp2", BASE, replace(TP2_SP, etp=2), "zero2"),
    named("tp2 etp2 of shared tokens", BASE, LayerStrategy(tp=2, etp=2)),
    named("tp2 etp2 of shared tokens with shared experts", replace(BASE, sizes=QWEN2),
          LayerStrategy(tp=2, etp=2, recompute="full")),
    named("full", BASE, LayerStrategy(ep=2, recompute="full"), "zero3"),
    named("selective", BASE, LayerStrategy(ep=4, recompute="selective"), "zero1"),
    named("shared experts tp2 sp", replace(BASE, sizes=QWEN2), replace(TP2_SP, ep=2)),
    named("groups of two", replace(BASE, sizes=GROUPED_V3), LayerStrategy(ep=2)),
    named("groups", replace(BASE, sizes=GROUPED_V2), LayerStrategy(ep=4)),
    named("pipeline", replace(BASE, stages=2, micro_batch=2), LayerStrategy(ep=2)),
    named("pipeline zero3", replace(BASE, stages=2, micro_batch=2), LayerStrategy(ep=2), "zero3"),
    named("pipeline of parts", replace(BASE, stages=2, micro_batch=2), LayerStrategy(etp=2)),
    named("experts without a token", FEW, LayerStrategy(ep=4), "zero1"),
    named("parts without a token", FEW, LayerStrategy(ep=2, etp=2)),
    replace(BASE, name="mixed", sizes=replace(MIXTRAL, dense=1), strategies=MIXED),
    named("deepseek", DEEP, LayerStrategy()),
    named("deepseek ep4 zero1", DEEP, LayerStrategy(ep=4), "zero1"),
    named("deepseek tp2 sp ep2", DEEP, replace(TP2_SP, ep=2)),
    named("deepseek tp2 sp ep2 full", DEEP, replace(TP2_SP, ep=2, recompute="full"), "zero3"),
    named("latent tp2", replace(DEEP, sizes=LATENT_DENSE), LayerStrategy(tp=2)),
    named("latent unfused", replace(DEEP, sizes=LATENT_DENSE, flash=False), TP2_SP),
    named("latent tp4 sp", replace(DEEP, sizes=LATENT_DENSE),
          LayerStrategy(tp=4, sequence_parallel="megatron", recompute="selective")),
    named("direct latent tp2", replace(DEEP, sizes=DIRECT_LATENT), LayerStrategy(tp=2)),
    named("direct latent tp2 sp", replace(DEEP, sizes=DIRECT_LATENT), TP2_SP, "zero1"),
    *split_backward(),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_run_equals_the_reference(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)


@pytest.mark.evidence
def test_a_second_copy_of_experts_on_eight_ranks(eight_ranks: RankPool) -> None:
    """Eight ranks hold each dense parameter and four each expert: both keep pieces of two."""
    case = named(
        "hpz", replace(BASE, ranks=8, micro_batch=8, global_batch=16), LayerStrategy(ep=2), "hpz:2"
    )
    assert expert_secondary(case.layer_strategies()[1], 8) is not None
    check_case(eight_ranks, case)


def test_an_order_that_somebody_wrote(four_ranks: RankPool) -> None:
    shape = replace(BASE, stages=2, chunks=2, kind="zbv", micro_batch=2)
    case = named("order", shape, LayerStrategy(ep=2), "zero3")
    check_case(four_ranks, case, plan=random_order(case.plan(), 1))


@pytest.mark.parametrize(
    "case",
    [
        named("ep4", replace(BASE, dtype="bf16"), LayerStrategy(ep=4), "zero3"),
        named("deepseek", replace(DEEP, dtype="bf16"), replace(TP2_SP, ep=4), "zero1"),
    ],
    ids=lambda c: c.name,
)
def test_bf16_stays_within_its_bounds(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)
