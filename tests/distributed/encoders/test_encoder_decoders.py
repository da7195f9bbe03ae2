"""T5 under many plans equals the single-process reference, and its lowering."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.family_cases import FamilyCase, t5
from generators.plan_cases import sharded
from ranks.rank_pools import RankPool

from shardwright.spec.errors import ShardwrightError
from shardwright.spec.strategy import LayerStrategy

TP2 = LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
CASE = FamilyCase(name="", model=t5(), flash=False)
STAGES = replace(CASE, stages=2, micro_batch=2)
MIXED = (
    TP2,
    TP2_SP,
    replace(TP2, recompute="full"),
    sharded("zero3", 4),
    TP2,
    replace(TP2_SP, recompute="selective"),
    replace(TP2, recompute="full"),
    TP2,
)
SPLIT = [
    replace(STAGES, name="zero bubble", kind="zero_bubble", boundaries=(6,), strategies=TP2_SP),
    replace(
        STAGES, name="in a V", kind="zbv", boundaries=(2, 4, 6), strategies=sharded("zero1", 2)
    ),
    replace(STAGES, name="dualpipe", kind="dualpipe", boundaries=(2, 4, 6)),
]
"""Schedules that split the backward, of which some have both ends of the model on one stage."""
PLANS = [
    replace(CASE, name="zero3", strategies=sharded("zero3", 4)),
    replace(CASE, name="zero1 full", strategies=sharded("zero1", 4, recompute="full")),
    replace(CASE, name="zero2 selective", strategies=sharded("zero2", 4, recompute="selective")),
    replace(CASE, name="tp2 relu", model=t5(gated=False), strategies=TP2),
    replace(CASE, name="tp2 sp, shorter encoder", model=t5(encoder_tokens=8), strategies=TP2_SP),
    replace(CASE, name="mixed", strategies=MIXED),
    replace(STAGES, name="cut at the seam", boundaries=(4,), strategies=sharded("zero3", 2)),
    replace(STAGES, name="cut at the seam, tp2 sp", boundaries=(4,), strategies=TP2_SP),
    replace(STAGES, name="cut in the encoder", boundaries=(2,), strategies=sharded("zero1", 2)),
    replace(STAGES, name="cut in the decoder", boundaries=(6,), strategies=sharded("zero3", 2)),
    replace(
        STAGES,
        name="cut in the decoder, tp2 full",
        boundaries=(6,),
        strategies=replace(TP2_SP, recompute="full"),
    ),
    replace(STAGES, name="four stages", stages=4, boundaries=(2, 4, 6), micro_batch=1),
    replace(
        STAGES,
        name="interleaved",
        kind="interleaved",
        boundaries=(2, 4, 6),
        strategies=sharded("zero2", 2),
    ),
    *SPLIT,
]


@pytest.mark.parametrize("case", PLANS, ids=lambda c: c.name)
def test_runs_equal_the_reference(four_ranks: RankPool, case: FamilyCase) -> None:
    check_case(four_ranks, case)


WIDE = FamilyCase(name="", model=t5(hidden=64, ffn=160, vocab=512), flash=False, seq_len=64)
LOWERED = [
    replace(WIDE, name="zero2", strategies=sharded("zero2", 4)),
    replace(WIDE, name="mixed", strategies=MIXED),
    replace(WIDE, name="cut at the seam", stages=2, boundaries=(4,), strategies=TP2_SP),
    replace(WIDE, name="cut in the encoder", stages=2, boundaries=(2,), strategies=TP2),
    replace(
        WIDE, name="cut in the decoder", stages=2, boundaries=(6,), strategies=sharded("zero3", 2)
    ),
    *SPLIT,
]


@pytest.mark.parametrize("case", LOWERED, ids=lambda c: c.name)
def test_runs_issue_what_the_lowering_names(four_ranks: RankPool, case: FamilyCase) -> None:
    check_lowering(four_ranks, case)


SHORT = replace(WIDE, seq_len=32)
HELD = [
    replace(SHORT, name="one stage"),
    replace(SHORT, name="selective", strategies=sharded("zero3", 4, recompute="selective")),
    replace(SHORT, name="tp2 sp", strategies=TP2_SP),
    replace(SHORT, name="cut at the seam", stages=2, micro_batch=2, boundaries=(4,)),
    replace(SHORT, name="cut in the decoder", stages=2, micro_batch=2, boundaries=(6,)),
]


@pytest.mark.parametrize("case", HELD, ids=lambda c: c.name)
def test_runs_hold_what_is_predicted(four_ranks: RankPool, case: FamilyCase) -> None:
    check_live_bytes(four_ranks, case)


def test_flash_attention_learns_no_bias(two_ranks: RankPool) -> None:
    case = replace(CASE, flash=True, ranks=2)
    with pytest.raises(ShardwrightError, match="unfused for a model that learns biases of scores"):
        check_case(two_ranks, case)
