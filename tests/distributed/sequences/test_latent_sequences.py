"""Latent attention whose sequences are split: rings of narrow values, Ulysses, both, seams."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.family_cases import FamilyCase
from generators.plan_cases import sharded
from ranks.expert_runs import DEEPSEEK, DIRECT_LATENT, LATENT_DENSE
from ranks.rank_pools import RankPool

from shardwright.spec.strategy import LayerStrategy

CP2, CP4 = LayerStrategy(cp=2), LayerStrategy(cp=4)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
ULYSSES2 = LayerStrategy(tp=2, sequence_parallel="ulysses")
ULYSSES4 = LayerStrategy(tp=4, sequence_parallel="ulysses")
HYBRID = replace(ULYSSES2, cp=2)
SEAMS = (CP2, ULYSSES4, replace(TP2_SP, cp=2), HYBRID, CP4)

LATENT = FamilyCase(name="", model=LATENT_DENSE.model())
DIRECT = FamilyCase(name="", model=DIRECT_LATENT.model())
EXPERTS = FamilyCase(name="", model=DEEPSEEK.model())
PLANS = [
    replace(LATENT, name="cp 4", strategies=replace(CP4, recompute="full")),
    replace(LATENT, name="cp 2 zero3", strategies=sharded("zero3", 4, cp=2)),
    replace(DIRECT, name="cp 2 x tp 2 sp", strategies=replace(TP2_SP, cp=2)),
    replace(LATENT, name="ulysses 4", strategies=replace(ULYSSES4, recompute="selective")),
    replace(DIRECT, name="ulysses 2 unfused", strategies=ULYSSES2, flash=False),
    replace(LATENT, name="hybrid", strategies=replace(HYBRID, recompute="selective")),
    replace(LATENT, name="seams", strategies=SEAMS),
    replace(LATENT, name="pp 2", strategies=CP2, stages=2, micro_batch=2, boundaries=(2,)),
    replace(
        LATENT,
        name="zero bubble",
        strategies=ULYSSES2,
        stages=2,
        micro_batch=2,
        kind="zero_bubble",
        boundaries=(2,),
    ),
    replace(
        EXPERTS,
        name="experts",
        strategies=(CP2, ULYSSES2, replace(CP2, ep=2), replace(ULYSSES2, ep=4), CP2),
    ),
]


@pytest.mark.parametrize("case", PLANS, ids=lambda c: c.name)
def test_runs_equal_the_reference(four_ranks: RankPool, case: FamilyCase) -> None:
    check_case(four_ranks, case)


WIDE = FamilyCase(
    name="",
    model=replace(LATENT_DENSE, hidden=64, ffn=160, vocab=512, blocks=2).model(),
    seq_len=64,
)
LOWERED = [
    replace(WIDE, name="cp 2", strategies=CP2),
    replace(WIDE, name="cp 2 x tp 2 sp", strategies=replace(TP2_SP, cp=2, recompute="full")),
    replace(WIDE, name="cp 2 zero3 bf16", strategies=sharded("zero3", 4, cp=2), dtype="bf16"),
    replace(WIDE, name="ulysses 2", strategies=ULYSSES2),
    replace(WIDE, name="ulysses 4 unfused", strategies=ULYSSES4, flash=False),
    replace(WIDE, name="hybrid", strategies=replace(HYBRID, recompute="selective")),
    replace(WIDE, name="cp 4 selective", strategies=replace(CP4, recompute="selective")),
]


@pytest.mark.parametrize("case", LOWERED, ids=lambda c: c.name)
def test_runs_issue_what_the_lowering_names(four_ranks: RankPool, case: FamilyCase) -> None:
    check_lowering(four_ranks, case)


HELD = [
    replace(WIDE, name="cp 2", strategies=CP2),
    replace(WIDE, name="cp 4 full", strategies=replace(CP4, recompute="full")),
    replace(WIDE, name="ulysses 2", strategies=ULYSSES2),
    replace(WIDE, name="ulysses 4 unfused", strategies=ULYSSES4, flash=False),
    replace(WIDE, name="hybrid", strategies=HYBRID),
]


@pytest.mark.parametrize("case", HELD, ids=lambda c: c.name)
def test_runs_hold_what_is_predicted(four_ranks: RankPool, case: FamilyCase) -> None:
    check_live_bytes(four_ranks, case)
