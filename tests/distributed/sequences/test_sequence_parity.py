"""Runs that split the sequence equal the reference: rings, Ulysses, both, and seams between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.run_checks import check_case, check_run
from generators.heterogeneous_cases import FAST, SLOW, MixedCase, ranks
from generators.plan_cases import GPT2, QWEN3, Case, Sizes, random_case, sharded
from ranks.rank_pools import RankPool

from shardwright.spec.errors import ShardwrightError
from shardwright.spec.strategy import LayerStrategy

HEADS = Sizes(kv_heads=4)
CP2, CP4 = LayerStrategy(cp=2), LayerStrategy(cp=4)
TP2, TP2_SP = LayerStrategy(tp=2), LayerStrategy(tp=2, sequence_parallel="megatron")
ULYSSES2 = LayerStrategy(tp=2, sequence_parallel="ulysses")
ULYSSES4 = LayerStrategy(tp=4, sequence_parallel="ulysses")
HYBRID = replace(ULYSSES2, cp=2)


UNIFORM = {
    "cp 2": CP2,
    "cp 4": CP4,
    "ulysses 2": ULYSSES2,
    "ulysses 4": ULYSSES4,
    "cp 2 x ulysses 2": HYBRID,
    "cp 2 x tp 2": replace(TP2, cp=2),
    "cp 2 x tp 2 sp": replace(TP2_SP, cp=2),
    **{
        f"cp 2 x dp 2 {level}": sharded(level, 4, cp=2)
        for level in ("zero1", "zero2", "zero3", "hsdp:2")
    },
    "ulysses 2 x dp 2 zero3": sharded("zero3", 4, tp=2, sequence_parallel="ulysses"),
    "cp 2 x tp 2 sp zero2": sharded("zero2", 2, tp=2, sequence_parallel="megatron", cp=2),
    "cp 4 full": replace(CP4, recompute="full"),
    "cp 2 selective": replace(CP2, recompute="selective"),
    "cp 2 x ulysses 2 full": replace(HYBRID, recompute="full"),
    "cp 2 x ulysses 2 selective": replace(HYBRID, recompute="selective"),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_one_split_everywhere(four_ranks: RankPool, name: str) -> None:
    check_case(four_ranks, Case(name=name, sizes=HEADS, strategies=UNIFORM[name]))


MIXED = (CP2, TP2, CP2, ULYSSES4, replace(TP2_SP, cp=2), HYBRID)
OTHERS = [
    Case(name="mixed", sizes=HEADS, strategies=MIXED),
    Case(name="mixed the other way", sizes=HEADS, strategies=MIXED[::-1]),
    Case(
        name="mixed with recomputation",
        sizes=HEADS,
        strategies=(
            TP2_SP,
            replace(CP4, recompute="full"),
            sharded("zero3", 4, recompute="selective"),
            replace(ULYSSES2, recompute="full"),
            sharded("zero3", 4, cp=2),
            LayerStrategy(tp=4),
        ),
    ),
    Case(name="fewer key heads in a ring", sizes=Sizes(kv_heads=2), strategies=HYBRID),
    Case(name="learned positions in a ring", sizes=GPT2, strategies=CP2),
    Case(name="learned positions, ring of tp sp", sizes=GPT2, strategies=replace(TP2_SP, cp=2)),
    Case(name="learned positions with ulysses", sizes=GPT2, strategies=HYBRID),
    Case(name="heads with norms", sizes=QWEN3, strategies=HYBRID),
    Case(name="unfused ulysses", sizes=HEADS, strategies=ULYSSES2, flash=False),
    Case(name="unfused ulysses, fewer key heads", strategies=ULYSSES2, flash=False),
]


def pipelines() -> list[Case]:
    shape = Case(name="", stages=2, micro_batch=2)
    ring = replace(shape, name="cp 2", strategies=CP2)
    seam = (CP2, LayerStrategy(), CP2, ULYSSES2, TP2, CP2)
    return [
        ring,
        replace(shape, name="cp 2 zero3", strategies=sharded("zero3", 2, cp=2)),
        replace(shape, name="ulysses 2", strategies=ULYSSES2),
        replace(shape, name="cp 2 tied", sizes=GPT2, strategies=CP2),
        replace(shape, name="ulysses 2 tied", sizes=GPT2, strategies=ULYSSES2),
        replace(shape, name="other splits on both sides", strategies=seam),
        replace(ring, name="interleaved", kind="interleaved", chunks=3),
        replace(shape, name="interleaved seams", kind="interleaved", chunks=3, strategies=seam),
    ]


@pytest.mark.parametrize("case", OTHERS, ids=lambda c: c.name)
def test_other_models_and_mixes(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)


@pytest.mark.parametrize("seed", range(10))
def test_random_plans(four_ranks: RankPool, seed: int) -> None:
    case = random_case(seed, sizes=HEADS, splits=True)
    check_case(four_ranks, case)


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(10, 100))
def test_many_random_plans(four_ranks: RankPool, seed: int) -> None:
    case = random_case(seed, sizes=HEADS, splits=True)
    check_case(four_ranks, case)


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(20))
def test_many_random_plans_on_eight_ranks(eight_ranks: RankPool, seed: int) -> None:
    case = random_case(seed, ranks=8, sizes=HEADS, splits=True)
    check_case(eight_ranks, case)


def test_a_ring_needs_the_flash_kernel(two_ranks: RankPool) -> None:
    with pytest.raises(ShardwrightError, match=r"attention: got unfused.*flash"):
        check_case(two_ranks, Case(name="cp 2", ranks=2, strategies=CP2, flash=False))


PIPELINE = Case(name="", global_batch=8, micro_batch=4)
MIXED_STAGES = [
    MixedCase(
        name="a ring, then one rank",
        held=(ranks(2), ranks(1)),
        strategies=(CP2, LayerStrategy()),
        base=PIPELINE,
    ),
    MixedCase(
        name="one rank, then ulysses",
        held=(ranks(1), ranks(2)),
        strategies=(LayerStrategy(), (ULYSSES2, CP2)),
        base=PIPELINE,
    ),
    MixedCase(
        name="interleaved, tensor parallel and rings",
        held=(ranks(2), ranks(1)),
        strategies=((TP2_SP, CP2, ULYSSES2), LayerStrategy()),
        base=replace(PIPELINE, global_batch=16, chunks=2, kind="interleaved"),
    ),
]


@pytest.mark.parametrize("case", MIXED_STAGES, ids=lambda c: c.name)
def test_stages_of_other_widths(three_ranks: RankPool, case: MixedCase) -> None:
    check_run(three_ranks, case.plan())


def test_device_groups_with_shares_of_their_own(four_ranks: RankPool) -> None:
    held = ((FAST, 2, 0.75), (SLOW, 2, 0.25))
    turns = (CP2, TP2, LayerStrategy(), ULYSSES2)
    base = Case(name="", global_batch=16, micro_batch=8)
    case = MixedCase(name="shared", held=(held,), strategies=(turns,), base=base)
    check_run(four_ranks, case.plan())


@pytest.mark.parametrize("case", pipelines(), ids=lambda c: c.name)
def test_pipelines(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)


@pytest.mark.parametrize(
    "case",
    [
        Case(name="cp 2 zero3", dtype="bf16", strategies=sharded("zero3", 4, cp=2)),
        Case(name="cp 2 x ulysses 2", dtype="bf16", sizes=HEADS, strategies=HYBRID),
    ],
    ids=lambda c: c.name,
)
def test_bf16_stays_within_its_bounds(four_ranks: RankPool, case: Case) -> None:
    check_case(four_ranks, case)
