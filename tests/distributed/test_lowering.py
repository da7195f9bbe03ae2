"""The kernels and collectives that the cost model names are those that real ranks issue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.lowering_check import check_lowering, compare
from generators.plan_cases import GPT2, Case, Sizes, random_case, sharded
from ranks.rank_pools import RankPool

from shardwright.spec.strategy import LayerStrategy

SIZES = Sizes(hidden=64, ffn=160, vocab=512)
SEQ_LEN = 64
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")


@pytest.mark.parametrize("seed", range(14))
def test_random_plans(four_ranks: RankPool, seed: int) -> None:
    check_lowering(four_ranks, replace(random_case(seed, sizes=SIZES), seq_len=SEQ_LEN))


BUBBLE = Case(name="", stages=2, kind="zero_bubble", micro_batch=2)
V_SHAPE = replace(BUBBLE, chunks=2, kind="zbv")
PAIRS = replace(V_SHAPE, kind="dualpipe", global_batch=12)
SPLIT = [
    replace(BUBBLE, name="zero_bubble tp2 sp", strategies=replace(TP2_SP, recompute="full")),
    replace(BUBBLE, name="zero_bubble bf16 zero2", dtype="bf16", strategies=sharded("zero2", 2)),
    replace(V_SHAPE, name="tied zbv bf16 zero1", dtype="bf16", strategies=sharded("zero1", 2)),
    replace(V_SHAPE, name="zbv zero3", strategies=sharded("zero3", 2)),
    replace(PAIRS, name="dualpipe bf16 zero3", dtype="bf16", strategies=sharded("zero3", 2)),
    replace(PAIRS, name="tied dualpipe", strategies=TP2_SP),
]
"""Schedules that split the backward."""
REDUCED = Case(name="zero2 reduced in bf16", dtype="bf16", communication="bf16")


@pytest.mark.parametrize(
    "case",
    [
        Case(name="bf16 zero2", dtype="bf16", strategies=sharded("zero2", 4)),
        Case(name="bf16 hsdp in a pipeline", dtype="bf16", stages=2, micro_batch=2),
        Case(name="fp16 zero2", dtype="fp16", strategies=sharded("zero2", 4)),
        Case(name="fp16 without clipping", dtype="fp16", clip=None),
        Case(name="tied zero3", strategies=sharded("zero3", 4)),
        Case(
            name="tied interleaved",
            stages=2,
            chunks=3,
            kind="interleaved",
            micro_batch=2,
            strategies=TP2_SP,
        ),
        Case(name="selective", strategies=sharded("hsdp:2", 4, recompute="selective")),
        Case(name="selective ops", strategies=sharded("zero3", 4, recompute="selective-ops")),
        Case(name="tp2 sp selective ops", strategies=replace(TP2_SP, recompute="selective-ops")),
        Case(
            name="zero_bubble named results",
            stages=2,
            kind="zero_bubble",
            micro_batch=2,
            strategies=replace(TP2_SP, recompute="ops:save=input,query,attention,down"),
        ),
        *SPLIT,
        Case(name="hpz", strategies=sharded("hpz:2", 4)),
        Case(name="hpz bf16", dtype="bf16", strategies=sharded("hpz:2", 4)),
        replace(REDUCED, strategies=sharded("zero2", 4)),
        replace(REDUCED, name="zero1 reduced in bf16", strategies=sharded("zero1", 4)),
        Case(name="no clipping", clip=None, strategies=sharded("zero1", 4)),
    ],
    ids=lambda c: c.name,
)
def test_named_plans(four_ranks: RankPool, case: Case) -> None:
    family = GPT2 if "tied" in case.name else SIZES
    sizes = replace(SIZES, gpt2=family.gpt2, tied=family.tied)
    check_lowering(four_ranks, replace(case, sizes=sizes, seq_len=SEQ_LEN))


TINY = replace(SIZES, blocks=2, vocab=300)
FUSED = [
    Case(name="one stage", sizes=TINY),
    Case(name="unfused attention", sizes=TINY, flash=False),
    Case(
        name="heads with norms, zero3",
        sizes=replace(TINY, qk_norm=True),
        strategies=sharded("zero3", 4),
    ),
    Case(name="split vocabulary", sizes=TINY, strategies=TP2_SP),
    Case(name="tied gpt2", sizes=replace(TINY, gpt2=True, tied=True)),
    Case(name="full recomputation", sizes=TINY, strategies=LayerStrategy(recompute="full")),
    Case(
        name="selective recomputation", sizes=TINY, strategies=LayerStrategy(recompute="selective")
    ),
    Case(name="pipeline", sizes=TINY, stages=2, micro_batch=2),
]


QUICK = ("heads with norms, zero3", "split vocabulary", "pipeline")


@pytest.mark.parametrize(
    "case",
    [c if c.name in QUICK else pytest.param(c, marks=pytest.mark.evidence) for c in FUSED],
    ids=lambda c: c.name,
)
def test_fused_kernels(four_ranks: RankPool, case: Case) -> None:
    """As on a device, interpreted: float32, for the interpreter gets bf16 arithmetic wrong."""
    check_lowering(four_ranks, replace(case, seq_len=16, global_batch=4), fused=True)


def test_the_comparison_sees_a_missing_kernel(four_ranks: RankPool) -> None:
    case = Case(name="plain", sizes=SIZES, seq_len=SEQ_LEN)
    plan = case.plan()
    record = four_ranks.run("ranks.rank_jobs:record", {"plan": plan.to_document()})[0]
    largest = max(record["kernels"], key=lambda row: row[0][3])
    largest[1] -= 1
    found = compare(case, plan, record)
    assert found.recorded_flops < found.lowered_flops
    assert list(found.kernels_apart.values()) == [-1]


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(20, 100))
def test_many_random_plans(four_ranks: RankPool, seed: int) -> None:
    check_lowering(four_ranks, replace(random_case(seed, sizes=SIZES), seq_len=SEQ_LEN))
