"""A run under any plan equals the single-process reference, by the norm of executor.verify."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.run_checks import check_case
from generators.plan_cases import GPT2, LLAMA, QWEN3, Case, Sizes, random_case, sharded
from generators.random_actions import random_order
from ranks.rank_pools import RankPool

from shardwright.spec.errors import RunError
from shardwright.spec.strategy import LayerStrategy

FUSED_JOB = "ranks.rank_jobs:train_fused"
TP2 = LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
TP4_SP = LayerStrategy(tp=4, sequence_parallel="megatron")
FULL_HEADS = Sizes(kv_heads=4)


LEVELS = ("zero0", "zero1", "zero2", "zero3", "hsdp:2")
MIXED = (
    sharded("zero1", 4),
    LayerStrategy(tp=2, shard=sharded("zero3", 2).shard),
    TP4_SP,
    sharded("hsdp:2", 4, recompute="full"),
    TP2_SP,
    TP2,
)
MIXED_STAGE = (
    sharded("zero1", 2),
    TP2,
    sharded("zero3", 2, recompute="full"),
    TP2_SP,
    sharded("zero2", 2),
    LayerStrategy(),
)

ONE_STAGE = [
    *(Case(name=level, strategies=sharded(level, 4)) for level in LEVELS),
    *(Case(name=f"gpt2 {level}", sizes=GPT2, strategies=sharded(level, 4)) for level in LEVELS),
    Case(name="qwen3 zero3", sizes=QWEN3, strategies=sharded("zero3", 4)),
    Case(name="hpz", strategies=sharded("hpz:2", 4)),
    Case(name="hpz gpt2", sizes=GPT2, strategies=sharded("hpz:2", 4)),
    Case(name="hpz full", strategies=sharded("hpz:2", 4, recompute="full")),
    Case(name="hpz in a ring", strategies=sharded("hpz:2", 4, cp=2)),
    *(Case(name=text, strategies=sharded(text, 4)) for text in ("1/2/4", "2/2/4", "2/4/4")),
    Case(name="tp2", strategies=TP2),
    Case(name="tp2 gpt2", sizes=GPT2, strategies=TP2),
    Case(name="tp2 qwen3", sizes=QWEN3, strategies=TP2),
    Case(name="tp4", sizes=FULL_HEADS, strategies=LayerStrategy(tp=4)),
    Case(name="tp2 sp", strategies=TP2_SP),
    Case(name="tp2 sp gpt2", sizes=GPT2, strategies=TP2_SP),
    Case(name="tp2 sp qwen3", sizes=QWEN3, strategies=TP2_SP),
    Case(name="tp4 sp", sizes=FULL_HEADS, strategies=TP4_SP),
    *(
        Case(name=f"tp2 {level}", strategies=replace(TP2, shard=sharded(level, 2).shard))
        for level in ("zero1", "zero2", "zero3")
    ),
    Case(name="tp2 sp zero3", strategies=replace(TP2_SP, shard=sharded("zero3", 2).shard)),
    *(
        Case(
            name=f"recompute {how} {'flash' if flash else 'unfused'}",
            strategies=sharded("zero3", 4, recompute=how),
            flash=flash,
        )
        for how in ("full", "selective")
        for flash in (True, False)
    ),
    Case(name="tp2 sp full", strategies=replace(TP2_SP, recompute="full")),
    Case(name="unfused gpt2", sizes=GPT2, flash=False),
    Case(name="mixed", sizes=FULL_HEADS, strategies=MIXED),
    Case(name="one micro-batch", strategies=sharded("zero2", 4), micro_batch=8),
    Case(
        name="vocabulary that tp does not divide",
        sizes=Sizes(vocab=67),
        strategies=replace(TP2, shard=sharded("zero3", 2).shard),
    ),
    Case(
        name="parameters with fewer rows than shards",
        sizes=Sizes(hidden=8, heads=4, kv_heads=4, ffn=16, qk_norm=True),
        strategies=sharded("zero3", 4),
    ),
]


def pipelines() -> list[Case]:
    found = []
    for kind, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 3)):
        shape = Case(name=kind, stages=2, chunks=chunks, kind=kind, micro_batch=2)
        found += [
            shape,
            replace(shape, name=f"{kind} tp2 sp", strategies=TP2_SP),
            replace(shape, name=f"{kind} tp2 gpt2", sizes=GPT2, strategies=TP2),
            *(
                replace(shape, name=f"{kind} {level}", strategies=sharded(level, 2))
                for level in ("zero1", "zero2", "zero3")
            ),
            replace(shape, name=f"{kind} tied", sizes=GPT2, strategies=sharded("zero1", 2)),
            replace(shape, name=f"{kind} mixed", strategies=MIXED_STAGE),
        ]
    four = Case(name="four stages", stages=4, micro_batch=1)
    return [
        *found,
        four,
        replace(four, name="uneven stages", boundaries=(1, 3, 5)),
        replace(four, name="gpipe uneven tied", boundaries=(2, 3, 4), kind="gpipe", sizes=GPT2),
        replace(four, name="one micro-batch in four stages", micro_batch=8),
    ]


def split_pipelines() -> list[Case]:
    """Schedules that split the backward, with what could come between its two parts."""
    eight = Sizes(blocks=8)
    bubble = Case(name="zero_bubble", stages=2, kind="zero_bubble", micro_batch=2)
    v_shape = Case(name="zbv", stages=2, chunks=2, kind="zbv", micro_batch=2)
    pairs = replace(v_shape, name="dualpipe", kind="dualpipe", global_batch=12)
    found = []
    for shape in (bubble, v_shape, pairs):
        found += [
            shape,
            replace(shape, name=f"{shape.kind} tp2 sp", strategies=TP2_SP),
            replace(shape, name=f"{shape.kind} tied", sizes=GPT2, strategies=sharded("zero1", 2)),
            replace(shape, name=f"{shape.kind} mixed", strategies=MIXED_STAGE),
            *(
                replace(shape, name=f"{shape.kind} {level}", strategies=sharded(level, 2))
                for level in ("zero2", "zero3")
            ),
        ]
    return [
        *found,
        replace(
            bubble, name="zero_bubble selective", strategies=LayerStrategy(recompute="selective")
        ),
        replace(
            bubble,
            name="zero_bubble on three stages",
            ranks=3,
            stages=3,
            micro_batch=1,
            global_batch=6,
            strategies=LayerStrategy(recompute="full"),
        ),
        replace(
            bubble,
            name="zero_bubble uneven",
            stages=4,
            micro_batch=1,
            boundaries=(1, 3, 5),
            sizes=GPT2,
        ),
        replace(v_shape, name="zbv on four stages", stages=4, micro_batch=1, sizes=eight),
        replace(pairs, name="dualpipe on four stages", stages=4, micro_batch=1, sizes=eight),
        replace(v_shape, name="zbv, fewer micro-batches than fill it", micro_batch=8),
    ]


@pytest.mark.parametrize("case", ONE_STAGE, ids=lambda c: c.name)
def test_one_stage(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)


@pytest.mark.parametrize("case", pipelines(), ids=lambda c: c.name)
def test_pipelines(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)


@pytest.mark.parametrize("seed", range(3))
def test_orders_that_somebody_wrote(four_ranks: RankPool, seed: int) -> None:
    case = Case(
        name=f"order {seed}",
        stages=2,
        chunks=1 + seed % 2,
        kind="zbv" if seed % 2 else "1f1b",
        micro_batch=2,
        strategies=sharded(("zero1", "zero2", "zero3")[seed], 2),
        sizes=GPT2,
    )
    check_case(four_ranks, case, plan=random_order(case.plan(), seed))


@pytest.mark.parametrize("case", split_pipelines(), ids=lambda c: c.name)
def test_schedules_that_split_the_backward(
    three_ranks: RankPool, four_ranks: RankPool, case: Case
) -> None:
    check_case(three_ranks if case.ranks == 3 else four_ranks, case)


@pytest.mark.parametrize("seed", range(20))
def test_random_plans(four_ranks: RankPool, seed: int) -> None:
    check_case(four_ranks, random_case(seed))


def few_tokens(case: Case) -> Case:
    """As little as interpreted kernels need: their programs run one after another in Python."""
    return replace(case, global_batch=case.micro_batch * case.stages, seq_len=8)


EVERY_CASE = {c.name: c for c in (*ONE_STAGE, *pipelines())}
FUSED_CASES = ("tp2 sp qwen3", "mixed")


@pytest.mark.parametrize("name", FUSED_CASES)
def test_fused_kernels(four_ranks: RankPool, name: str) -> None:
    check_case(four_ranks, few_tokens(EVERY_CASE[name]), FUSED_JOB)


@pytest.mark.evidence
@pytest.mark.parametrize("name", [n for n in EVERY_CASE if n not in FUSED_CASES])
def test_fused_kernels_in_every_case(four_ranks: RankPool, name: str) -> None:
    check_case(four_ranks, few_tokens(EVERY_CASE[name]), FUSED_JOB)


@pytest.mark.parametrize(
    "case",
    [
        Case(
            name="2 stages of tp2 sp x zero2",
            ranks=8,
            stages=2,
            strategies=replace(TP2_SP, shard=sharded("zero2", 2).shard),
        ),
        Case(
            name="4 interleaved stages of zero3",
            ranks=8,
            stages=4,
            chunks=2,
            sizes=Sizes(blocks=6),
            kind="interleaved",
            micro_batch=2,
            strategies=sharded("zero3", 2, recompute="selective"),
        ),
        replace(random_case(100, ranks=8, stages=2), name="random on 2 stages"),
    ],
    ids=lambda c: c.name,
)
def test_eight_ranks(eight_ranks: RankPool, case: Case) -> None:
    check_case(eight_ranks, case)


@pytest.mark.parametrize(
    "case",
    [
        Case(name="zero3", dtype="bf16", strategies=sharded("zero3", 4)),
        Case(
            name="reduced in bf16",
            dtype="bf16",
            communication="bf16",
            strategies=sharded("zero2", 4),
        ),
        Case(name="tp2 sp gpt2", dtype="bf16", sizes=GPT2, strategies=TP2_SP),
        Case(name="zero0", dtype="bf16", sizes=LLAMA),
        Case(name="1f1b zero2", dtype="bf16", stages=2, strategies=sharded("zero2", 2)),
        Case(name="fp16 zero2", dtype="fp16", strategies=sharded("zero2", 4)),
        Case(name="fp16 tp2 sp gpt2", dtype="fp16", sizes=GPT2, strategies=TP2_SP),
        Case(name="fp16 1f1b", dtype="fp16", stages=2, clip=None),
        Case(
            name="zero_bubble zero2",
            dtype="bf16",
            stages=2,
            kind="zero_bubble",
            micro_batch=2,
            strategies=sharded("zero2", 2),
        ),
    ],
    ids=lambda c: c.name,
)
def test_16_bits_stay_within_their_bounds(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)


def test_verification_catches_a_gradient_that_is_off(two_ranks: RankPool) -> None:
    case = Case(name="zero3", ranks=2, strategies=sharded("zero3", 2))
    payload = {"plan": case.plan().to_document(), "parameter": "layers.2.up.weight"}
    with pytest.raises(RunError, match=r"the gradient of layers\.2\.up\.weight is off by"):
        two_ranks.run("ranks.rank_jobs:train_with_a_mistake", payload)


def test_verification_catches_a_loss_that_is_off(two_ranks: RankPool) -> None:
    case = Case(name="zero0", ranks=2)
    payload = {"plan": case.plan().to_document(), "parameter": None}
    with pytest.raises(RunError, match="verification: a loss is off by"):
        two_ranks.run("ranks.rank_jobs:train_with_a_mistake", payload)


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(20, 200))
def test_many_random_plans(four_ranks: RankPool, seed: int) -> None:
    check_case(four_ranks, random_case(seed))


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(30))
def test_many_random_plans_on_eight_ranks(eight_ranks: RankPool, seed: int) -> None:
    check_case(eight_ranks, random_case(1000 + seed, ranks=8))
