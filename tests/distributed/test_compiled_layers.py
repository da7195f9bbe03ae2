"""Compiled blocks on real ranks: the reference's losses and gradients, the eager collectives.

``aot_eager`` traces and differentiates as the compiler does and leaves out only the writing of
fused kernels, which costs minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from compiled import with_mode
from lowering_check import compare
from plan_cases import Case, Sizes, sharded
from rank_pools import RankPool

from shardwright.executor.launch import TRAIN_JOB
from shardwright.executor.verify import BOUNDS
from shardwright.spec.strategy import LayerStrategy

SIZES = Sizes(blocks=2, hidden=64, ffn=160, vocab=512, qk_norm=True)
CASES = (
    Case(
        name="whole blocks, sharded and recomputed",
        sizes=SIZES,
        ranks=2,
        strategies=with_mode(sharded("zero3", 2, recompute="full"), "default"),
    ),
    Case(
        name="parts between collectives, recomputed",
        sizes=SIZES,
        ranks=2,
        strategies=with_mode(
            LayerStrategy(tp=2, sequence_parallel="megatron", recompute="full"), "default"
        ),
    ),
)


@pytest.fixture(scope="module")
def two_ranks() -> Iterator[RankPool]:
    with RankPool(2, silent_after_s=60.0) as pool:
        yield pool


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiled_blocks_are_the_eager_ones(two_ranks: RankPool, case: Case) -> None:
    plan = replace(case, seq_len=64).plan()
    payload = {"plan": plan.to_document(), "compiler": "aot_eager"}
    settings = {"steps": 2, "verify": True, "random_tokens": True, "follow_bytes": False}
    result = two_ranks.run(TRAIN_JOB, {**payload, **settings})[0]
    found, bounds = result["verify"], BOUNDS["fp32"]
    assert len(result["measured"]["losses"]) == 2
    assert found["max_rel_grad_diff"] <= bounds.gradient, found["worst_tensor"]
    assert found["max_rel_loss_diff"] <= bounds.loss
    for record in two_ranks.run("rank_jobs:record", payload):
        items = compare(case, plan, record)
        assert items.collectives_apart == {}
        assert items.recorded_flops == items.lowered_flops
