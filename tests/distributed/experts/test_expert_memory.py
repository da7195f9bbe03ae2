"""Bytes of runs with experts against the simulated ones; norms and weights, the reference's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from generators.plan_cases import Case
from ranks.expert_runs import DEEPSEEK, MIXTRAL, QWEN2, ExpertSizes, spread
from ranks.rank_pools import RankPool

from shardwright.spec.strategy import LayerStrategy

TOLERANCE = 0.02
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
WIDE = {"hidden": 64, "ffn": 160, "vocab": 512, "blocks": 3}


def wide(sizes: ExpertSizes) -> ExpertSizes:
    assert sizes.moe is not None
    return replace(sizes, **WIDE, moe=replace(sizes.moe, ffn=96, experts=8))  # type: ignore[arg-type]


BASE = Case(name="", sizes=wide(MIXTRAL), seq_len=128)
DEEP = replace(BASE, sizes=wide(DEEPSEEK))
BUBBLE = replace(BASE, stages=2, kind="zero_bubble", micro_batch=2)
SHARED = replace(BUBBLE, sizes=wide(QWEN2))
V_SHAPE = replace(BUBBLE, chunks=2, kind="zbv")
PAIRS = replace(V_SHAPE, sizes=DEEP.sizes, kind="dualpipe", global_batch=12)


def named(name: str, case: Case, strategy: LayerStrategy, shard: str = "zero0") -> Case:
    return spread(replace(case, name=name), strategy, shard)


CASES = [
    named("ep2", BASE, LayerStrategy(ep=2)),
    named("ep4 zero1", BASE, LayerStrategy(ep=4), "zero1"),
    named("ep2 zero2 bf16", replace(BASE, dtype="bf16"), LayerStrategy(ep=2), "zero2"),
    named("ep2 zero3", BASE, LayerStrategy(ep=2), "zero3"),
    named("full", BASE, LayerStrategy(ep=2, recompute="full")),
    named("tp2 sp ep2", BASE, replace(TP2_SP, ep=2)),
    named("ep2 etp2", BASE, LayerStrategy(ep=2, etp=2)),
    named("deepseek", DEEP, LayerStrategy(ep=2)),
    named("deepseek tp2 sp", DEEP, replace(TP2_SP, ep=2), "zero1"),
    named("zero_bubble ep2", BUBBLE, LayerStrategy(ep=2)),
    named("zero_bubble ep2 zero3", BUBBLE, LayerStrategy(ep=2), "zero3"),
    named("zero_bubble etp2 of shared tokens", SHARED, LayerStrategy(tp=2, etp=2)),
    named("zbv ep2 zero2 bf16", replace(V_SHAPE, dtype="bf16"), LayerStrategy(ep=2), "zero2"),
    named("zbv full", V_SHAPE, LayerStrategy(ep=2, recompute="full")),
    named("dualpipe deepseek tp2 sp", PAIRS, replace(TP2_SP, ep=2)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bytes_are_within_two_per_cent(four_ranks: RankPool, case: Case) -> None:
    check_live_bytes(four_ranks, case, job="ranks.expert_jobs:live_bytes")


NORMS = [
    named("ep2 zero1", replace(BASE, sizes=MIXTRAL, seq_len=16), LayerStrategy(ep=2), "zero1"),
    named(
        "pipeline of tp2 sp ep2",
        replace(BASE, sizes=MIXTRAL, seq_len=16, stages=2, micro_batch=2),
        replace(TP2_SP, ep=2),
    ),
    named("etp2 zero3", replace(BASE, sizes=MIXTRAL, seq_len=16), LayerStrategy(etp=2), "zero3"),
]


@pytest.mark.parametrize("case", NORMS, ids=lambda c: c.name)
def test_norms_and_weights_equal_the_reference(four_ranks: RankPool, case: Case) -> None:
    """Clipping needs one norm over parameters of many meshes, each counted once."""
    payload = {"plan": case.plan().to_document(), "steps": 3}
    found = four_ranks.run("ranks.rank_jobs:norms", payload)[0]
    assert found["norms"] == pytest.approx(found["reference_norms"], rel=1e-5)
    if case.stages == 1:
        assert found["weight_difference"] <= 1e-4
