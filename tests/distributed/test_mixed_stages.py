"""Plans whose stages are not alike equal the single-process reference, and send what they must."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mixed_cases import FAST, SLOW, MixedCase, ranks
from plan_cases import GPT2, Case, Sizes, sharded
from rank_pools import RankPool

from shardwright.executor.launch import TRAIN_JOB
from shardwright.executor.verify import BOUNDS
from shardwright.spec.strategy import LayerStrategy

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


def check(pool: RankPool, case: MixedCase) -> dict[str, Any]:
    payload = {
        "plan": case.plan().to_document(),
        "steps": STEPS,
        "verify": True,
        "random_tokens": True,
        "follow_bytes": False,
    }
    result: dict[str, Any] = pool.run(TRAIN_JOB, payload)[0]
    found, bounds = result["verify"], BOUNDS[case.base.dtype]
    assert len(result["measured"]["losses"]) == STEPS
    assert found["max_rel_grad_diff"] <= bounds.gradient, found["worst_tensor"]
    assert found["max_rel_loss_diff"] <= bounds.loss
    return result


@pytest.mark.parametrize("case", THREE, ids=lambda c: c.name)
def test_three_ranks(three_ranks: RankPool, case: MixedCase) -> None:
    check(three_ranks, case)


@pytest.mark.parametrize("case", FOUR, ids=lambda c: c.name)
def test_four_ranks(four_ranks: RankPool, case: MixedCase) -> None:
    check(four_ranks, case)
