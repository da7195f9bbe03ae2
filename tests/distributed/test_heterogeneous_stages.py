"""Plans whose stages are not alike equal the single-process reference, and send what they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from checks.lowering_check import executor_stack, recorded_items
from checks.run_checks import check_run
from generators.heterogeneous_cases import FAST, SLOW, MixedCase, ranks
from generators.plan_cases import GPT2, Case, Sizes, sharded
from generators.zoned_clusters import in_zones
from ranks.rank_pools import RankPool

from shardwright.costmodel.lowering.step_work import step_work
from shardwright.executor.groups.rank_layout import stage_layout
from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.plan.plan import Plan
from shardwright.spec.plan.stage_messages import boundary_messages
from shardwright.spec.report.work_items import Collective
from shardwright.spec.schedules.stage_order import chunk_location
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.number_formats import DTYPE_BYTES

STEPS = 2
TP2 = LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
PLAIN = LayerStrategy()
PIPELINE = Case(name="", global_batch=8, micro_batch=4)
EVEN_INTERLEAVED = Case(name="", global_batch=16, micro_batch=4, chunks=2, kind="interleaved")
TWELVE = Case(name="", global_batch=24, micro_batch=12)
SHARED = ((FAST, 1, 0.75), (SLOW, 1, 0.25))
WIDE_SHARED = ((FAST, 2, 0.75), (SLOW, 2, 0.25))
ZERO3 = sharded("zero3", 4)

THREE = [
    MixedCase(name="1+2", held=(ranks(1), ranks(2)), base=PIPELINE),
    MixedCase(name="2+1", held=(ranks(2), ranks(1)), base=PIPELINE),
    MixedCase(
        name="1+2 gpipe, zero3 on two",
        held=(ranks(1), ranks(2)),
        strategies=(PLAIN, sharded("zero3", 2)),
        base=replace(PIPELINE, kind="gpipe"),
    ),
    MixedCase(
        name="2+1 with tp2 sp",
        held=(ranks(2), ranks(1)),
        strategies=(TP2_SP, PLAIN),
        base=PIPELINE,
    ),
    MixedCase(
        name="1+2 with tp2 sp",
        held=(ranks(1), ranks(2)),
        strategies=(PLAIN, TP2_SP),
        base=PIPELINE,
    ),
    MixedCase(name="1+2 interleaved", held=(ranks(1), ranks(2)), base=EVEN_INTERLEAVED),
    MixedCase(
        name="2+1 interleaved, tp2 first",
        held=(ranks(2), ranks(1)),
        strategies=((TP2, PLAIN, TP2_SP), PLAIN),
        base=EVEN_INTERLEAVED,
    ),
    MixedCase(
        name="tied 2+1",
        held=(ranks(2), ranks(1)),
        base=replace(PIPELINE, sizes=GPT2),
        legal=False,
    ),
    MixedCase(
        name="one stage, 1/2 and twice 1/4",
        held=(((FAST, 1, 0.5), (SLOW, 2, 0.5)),),
        strategies=sharded("zero2", 3),
        base=TWELVE,
    ),
]
FOUR = [
    MixedCase(name="1+2+1", held=(ranks(1), ranks(2), ranks(1)), base=PIPELINE),
    MixedCase(name="1+3", held=(ranks(1), ranks(3)), base=TWELVE),
    MixedCase(
        name="3:1 on two stages of two",
        held=(SHARED, ((FAST, 1, 0.5), (SLOW, 1, 0.5))),
        base=PIPELINE,
    ),
    MixedCase(
        name="tp2 and dp2", held=(ranks(2), ranks(2, SLOW)), strategies=(TP2, PLAIN), base=PIPELINE
    ),
    MixedCase(
        name="dp2 and tp2 sp",
        held=(ranks(2), ranks(2, SLOW)),
        strategies=(sharded("zero1", 2), TP2_SP),
        base=PIPELINE,
    ),
    MixedCase(name="one stage, 3:1", held=(WIDE_SHARED,), base=replace(PIPELINE, micro_batch=8)),
    MixedCase(
        name="one stage, 3:1, zero3",
        held=(WIDE_SHARED,),
        strategies=ZERO3,
        base=replace(PIPELINE, global_batch=16, micro_batch=8),
    ),
    MixedCase(
        name="one stage, 3:1, tp2 between",
        held=(WIDE_SHARED,),
        strategies=((sharded("zero1", 4), TP2, replace(TP2_SP, recompute="full")),),
        base=replace(PIPELINE, global_batch=16, micro_batch=8),
    ),
    MixedCase(
        name="one stage, slow ranks recompute",
        held=(WIDE_SHARED,),
        strategies=ZERO3,
        slow=replace(ZERO3, recompute="full"),
        base=replace(PIPELINE, global_batch=16, micro_batch=8),
        legal=False,
    ),
    MixedCase(
        name="uneven shares first", held=(SHARED, ranks(2)), strategies=(PLAIN, TP2), base=PIPELINE
    ),
    MixedCase(
        name="uneven shares last",
        held=(ranks(2), SHARED),
        strategies=(TP2_SP, PLAIN),
        base=PIPELINE,
    ),
    MixedCase(
        name="1+2+1 gpt2, interleaved, uneven in the middle",
        held=(ranks(1), SHARED, ranks(1, SLOW)),
        base=replace(
            EVEN_INTERLEAVED,
            sizes=Sizes(blocks=6, gpt2=True),
            global_batch=12,
            micro_batch=4,
        ),
    ),
    MixedCase(
        name="bf16 1+3",
        held=(ranks(1), ranks(3, SLOW)),
        strategies=(PLAIN, sharded("zero2", 3)),
        base=replace(TWELVE, dtype="bf16"),
    ),
]


def tiered(cases: Sequence[MixedCase], quick: int) -> list[Any]:
    """The first cases, and the others for the long checks."""
    long = [pytest.param(case, marks=pytest.mark.evidence) for case in cases[quick:]]
    return [*cases[:quick], *long]


@pytest.mark.parametrize("case", THREE, ids=lambda c: c.name)
def test_three_ranks(three_ranks: RankPool, case: MixedCase) -> None:
    check_run(three_ranks, case.plan(), steps=STEPS)


def test_ranks_of_two_zones(three_ranks: RankPool) -> None:
    """A run knows devices and stages only: where they lie changes prices."""
    for held in ((ranks(1), ranks(2, SLOW)), (SHARED, ranks(1, SLOW))):
        plan = MixedCase(name="two zones", held=held, base=PIPELINE).plan()
        zoned = replace(plan, cluster=in_zones(plan.cluster, ("east", "west")))
        assert zoned.check() == []
        check_run(three_ranks, zoned, steps=STEPS)


@pytest.mark.parametrize("case", tiered(FOUR, 8), ids=lambda c: c.name)
def test_four_ranks(four_ranks: RankPool, case: MixedCase) -> None:
    check_run(four_ranks, case.plan(), steps=STEPS)


def expected_messages(plan: Plan, rank: int) -> Counter[Collective]:
    """What a rank sends and gets in a step, from the rows that every rank holds and wants."""
    program, layout = plan.program, stage_layout(plan)
    stages, kind = len(program.stages), program.schedule.kind
    row_bytes = plan.model.hidden * DTYPE_BYTES[plan.workload.dtype.param]
    found: Counter[Collective] = Counter()
    for position in range(stages * program.chunks_per_stage - 1):
        firsts = [layout[chunk_location(kind, position + i, stages)[0]][0] for i in (0, 1)]
        for forward, ends in ((True, firsts), (False, firsts[::-1])):
            for message in boundary_messages(plan, position, forward):
                source, target = ends[0] + message.source, ends[1] + message.target
                what = (2, abs(target - source), message.block.rows * row_bytes)
                for kinds, end in (("send", source), ("recv", target)):
                    if end == rank:
                        item = Collective(kinds, *what, plan.workload.dtype.param)  # type: ignore[arg-type]
                        found[item] += program.schedule.microbatches
    return found


def recorded(pool: RankPool, case: MixedCase) -> tuple[Plan, list[Counter[Collective]]]:
    plan = case.plan()
    records = pool.run("ranks.rank_jobs:record", {"plan": plan.to_document()})
    return plan, [recorded_items(record)[1] for record in records]


def is_message(item: Collective) -> bool:
    return item.kind in ("send", "recv")


def only_data_parallel(case: MixedCase) -> bool:
    """Whether all ranks of a stage work on whole layers."""
    plan = case.plan()
    return all(strategy.tp == 1 for strategy in plan.layer_strategies())


@pytest.mark.parametrize("case", tiered(FOUR, 5), ids=lambda c: c.name)
def test_what_ranks_exchange(four_ranks: RankPool, case: MixedCase) -> None:
    """Messages are those that the rows ask for; other collectives those of the lowering.

    Those of gradients, states and the norm, which shares of the batch do not change.
    """
    plan, found = recorded(four_ranks, case)
    stages = [s for s, (_, count) in enumerate(stage_layout(plan)) for _ in range(count)]
    for rank, (collectives, stage) in enumerate(zip(found, stages, strict=True)):
        sent = Counter({c: n for c, n in collectives.items() if is_message(c)})
        assert sent == expected_messages(plan, rank)
        if only_data_parallel(case):
            lowered = step_work(plan, executor_stack(flash=True), stage)
            others = (x for x in lowered if isinstance(x, Collective) and not is_message(x))
            assert collectives - sent == Counter(others)


def test_two_ranks_that_feed_one_send_half_a_micro_batch_each(three_ranks: RankPool) -> None:
    """By hand: 2 micro-batches of 4 samples, 16 tokens, hidden 32, 4 bytes."""
    _, found = recorded(three_ranks, THREE[1])
    half = 16 * 2 * 32 * 4
    sides = [{c: n for c, n in each.items() if is_message(c)} for each in found]
    for rank, away in ((0, 2), (1, 1)):
        both = [Collective(kind, 2, away, half, "fp32") for kind in ("send", "recv")]
        assert sides[rank] == dict.fromkeys(both, 2)
    assert sides[2] == {**sides[0], **sides[1]}


def test_a_trace_of_unequal_stages_adds_up(four_ranks: RankPool) -> None:
    case = next(c for c in FOUR if c.name == "1+2+1")
    payload = {"plan": case.plan().to_document(), "steps": 1, "random_tokens": True, "trace": True}
    result = four_ranks.run(TRAIN_JOB, payload)[0]
    assert len(result["measured"]["allocated_bytes"]) == 3
    traced = result["traced"]
    for terms in traced["breakdown_by_rank_s"]:
        assert sum(terms.values()) == pytest.approx(traced["step_time_s"])
        assert terms["matmul"] > 0
