"""Traced bytes of live tensors on real ranks against the simulated peak of their stage.

Steps from the second on do the same. A communication thread that is scheduled late holds its
buffer for longer, so the least of three peaks stands.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import TOLERANCE, check_live_bytes
from checks.lowering_check import executor_stack
from generators.plan_cases import Case, Sizes, random_case, sharded
from generators.random_actions import random_order
from ranks.rank_pools import RankPool

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.strategy import LayerStrategy

SIZES = Sizes(hidden=64, ffn=160, vocab=512)
GPT2 = replace(SIZES, gpt2=True, tied=True)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")


def one_stage() -> list[Case]:
    base = Case(name="", sizes=SIZES, seq_len=128)
    modes = [
        replace(base, name=f"{how} {'flash' if flash else 'unfused'}", strategies=s, flash=flash)
        for how in ("none", "selective", "full")
        for flash in (True, False)
        for s in [LayerStrategy(recompute=how)]
    ]
    levels = [
        replace(base, name=f"{level} {dtype}", strategies=sharded(level, 4), dtype=dtype)
        for level in ("zero0", "zero1", "zero2", "zero3", "hsdp:2", "hpz:2")
        for dtype in ("fp32", "bf16")
    ]
    return [
        *modes,
        *levels,
        replace(base, name="gpt2 zero1", sizes=GPT2, strategies=sharded("zero1", 4)),
        replace(base, name="gpt2 zero3 full", sizes=GPT2, strategies=sharded("zero3", 4)),
        replace(base, name="tp2 sp full", strategies=replace(TP2_SP, recompute="full")),
        replace(base, name="tp2", strategies=LayerStrategy(tp=2)),
        replace(base, name="selective ops", strategies=LayerStrategy(recompute="selective-ops")),
    ]


def pipelines() -> list[Case]:
    found = []
    for kind, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 3)):
        shape = Case(
            name=kind,
            sizes=SIZES,
            seq_len=128,
            stages=2,
            chunks=chunks,
            kind=kind,
            micro_batch=2,
        )
        found += [
            shape,
            replace(shape, name=f"{kind} zero3", strategies=sharded("zero3", 2)),
            replace(shape, name=f"{kind} zero2 bf16", strategies=sharded("zero2", 2), dtype="bf16"),
            replace(shape, name=f"{kind} tied", sizes=GPT2, strategies=sharded("zero1", 2)),
            replace(shape, name=f"{kind} full", strategies=replace(TP2_SP, recompute="full")),
        ]
    bubble = Case(name="", sizes=SIZES, seq_len=128, stages=2, kind="zero_bubble", micro_batch=2)
    v_shape = replace(bubble, chunks=2, kind="zbv")
    for shape in (bubble, v_shape, replace(v_shape, kind="dualpipe", global_batch=12)):
        found += [
            replace(shape, name=shape.kind),
            replace(shape, name=f"{shape.kind} zero3", strategies=sharded("zero3", 2)),
            replace(
                shape,
                name=f"{shape.kind} zero2 bf16",
                strategies=sharded("zero2", 2),
                dtype="bf16",
            ),
            replace(
                shape,
                name=f"{shape.kind} tied zero1 bf16",
                sizes=GPT2,
                strategies=sharded("zero1", 2),
                dtype="bf16",
            ),
            replace(shape, name=f"{shape.kind} full", strategies=replace(TP2_SP, recompute="full")),
        ]
    four = Case(name="four stages", sizes=SIZES, seq_len=128, stages=4, micro_batch=1)
    eight = replace(four, chunks=2, sizes=replace(SIZES, blocks=8), global_batch=8)
    return [
        *found,
        four,
        replace(four, name="four uneven stages", boundaries=(1, 2, 4), kind="gpipe"),
        replace(four, name="four stages of zero_bubble", kind="zero_bubble", global_batch=8),
        replace(eight, name="four stages of zbv", kind="zbv"),
        replace(eight, name="four stages of dualpipe", kind="dualpipe"),
    ]


@pytest.mark.parametrize("case", [*one_stage(), *pipelines()], ids=lambda c: c.name)
def test_second_step_is_within_two_per_cent(four_ranks: RankPool, case: Case) -> None:
    check_live_bytes(four_ranks, case)


@pytest.mark.parametrize("seed", range(2))
def test_orders_that_somebody_wrote_too(four_ranks: RankPool, seed: int) -> None:
    case = Case(name="", sizes=SIZES, seq_len=128, stages=4, micro_batch=1)
    check_live_bytes(four_ranks, case, plan=random_order(case.plan(), seed))


FEW = replace(SIZES, blocks=2)
FUSED = [
    Case(name=how, sizes=FEW, strategies=LayerStrategy(recompute=how))
    for how in ("none", "selective", "full")
]


LONG = [*FUSED[::2], Case(name="gpipe", sizes=FEW, stages=2, kind="gpipe", micro_batch=2)]
HEADS = Case(name="heads with norms", sizes=replace(FEW, qk_norm=True), flash=False)


@pytest.mark.parametrize(
    "case",
    [FUSED[1], HEADS, *(pytest.param(case, marks=pytest.mark.evidence) for case in LONG)],
    ids=lambda c: c.name,
)
def test_fused_kernels_too(four_ranks: RankPool, case: Case) -> None:
    check_live_bytes(four_ranks, replace(case, seq_len=32, global_batch=4), fused=True)


@pytest.mark.parametrize("level", ["zero0", "zero1", "zero2", "zero3", "hsdp:2"])
def test_a_run_reports_its_peak_from_a_later_step(four_ranks: RankPool, level: str) -> None:
    """Buffers that were made before the run was followed are counted when they are refilled."""
    case = Case(name=level, sizes=SIZES, seq_len=128, strategies=sharded(level, 4))
    plan = case.plan()
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), executor_stack(case.flash))
    payload = {"plan": plan.to_document(), "steps": 2, "random_tokens": True}
    (measured,) = four_ranks.run(TRAIN_JOB, payload)[0]["measured"]["allocated_bytes"]
    (row,) = simulator.run(plan).memory
    assert row.allocated_bytes == pytest.approx(measured, rel=TOLERANCE)


def test_nothing_is_left_from_step_to_step(four_ranks: RankPool) -> None:
    plan = random_case(3).plan()
    payload = {"plan": plan.to_document(), "steps": 6}
    for traced in four_ranks.run("ranks.rank_jobs:live_bytes", payload):
        peaks = traced["peak_bytes"]
        assert min(peaks[3:]) == min(peaks[:3])


def test_a_layer_behind_a_seam_lets_go_of_what_came(four_ranks: RankPool) -> None:
    check_live_bytes(four_ranks, replace(random_case(13, sizes=SIZES), seq_len=128))


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(60))
def test_random_plans_are_within_two_per_cent(four_ranks: RankPool, seed: int) -> None:
    case = replace(random_case(seed, sizes=SIZES), seq_len=128)
    check_live_bytes(four_ranks, case)
