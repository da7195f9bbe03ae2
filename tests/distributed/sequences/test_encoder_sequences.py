"""BERT and ViT whose sequences are split: rings of full masks, Ulysses, both, seams between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.family_cases import FamilyCase, bert, vit
from generators.plan_cases import sharded
from ranks.rank_pools import RankPool

from shardwright.spec.strategy import LayerStrategy

CP2, CP4, TP2 = LayerStrategy(cp=2), LayerStrategy(cp=4), LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
ULYSSES2 = LayerStrategy(tp=2, sequence_parallel="ulysses")
ULYSSES4 = LayerStrategy(tp=4, sequence_parallel="ulysses")
HYBRID = replace(ULYSSES2, cp=2)
SEAMS = (CP2, ULYSSES4, TP2_SP, replace(CP4, recompute="full"), HYBRID, replace(TP2_SP, cp=2))


def ends_whole(strategy: LayerStrategy, last: LayerStrategy) -> tuple[LayerStrategy, ...]:
    """One strategy for a ViT's patches and blocks; its classifier reads one token."""
    return (*[strategy] * 5, last)


BERT = FamilyCase(name="", model=bert(), seq_len=16)
VIT = FamilyCase(name="", model=vit())
UNMARKED = FamilyCase(name="", model=vit(image=16, class_token=False))
"""No class token: 16 patches, which a ring may cut in two."""
PLANS = [
    replace(BERT, name="bert cp 4", strategies=CP4),
    replace(BERT, name="bert cp 2 zero3", strategies=sharded("zero3", 4, cp=2)),
    replace(BERT, name="bert cp 2 x tp 2 sp", strategies=replace(TP2_SP, cp=2)),
    replace(BERT, name="bert ulysses 4", strategies=replace(ULYSSES4, recompute="full")),
    replace(BERT, name="bert ulysses 2 unfused", strategies=ULYSSES2, flash=False),
    replace(BERT, name="bert hybrid", strategies=replace(HYBRID, recompute="selective")),
    replace(BERT, name="bert seams", model=replace(bert(), tie_embeddings=False), strategies=SEAMS),
    replace(BERT, name="bert pp 2", strategies=CP2, stages=2, micro_batch=2, boundaries=(3,)),
    replace(
        BERT,
        name="bert zbv",
        strategies=ULYSSES2,
        stages=2,
        micro_batch=2,
        kind="zbv",
        boundaries=(1, 3, 4),
    ),
    replace(VIT, name="vit ulysses 2", strategies=ends_whole(ULYSSES2, TP2_SP)),
    replace(
        VIT,
        name="vit ulysses 2 zero2",
        strategies=ends_whole(
            sharded("zero2", 4, tp=2, sequence_parallel="ulysses"), sharded("zero2", 4)
        ),
    ),
    replace(UNMARKED, name="vit cp 2", strategies=ends_whole(CP2, LayerStrategy())),
    replace(UNMARKED, name="vit hybrid", strategies=ends_whole(HYBRID, TP2)),
    replace(UNMARKED, name="vit cp 2 x tp 2 sp", strategies=ends_whole(SEAMS[-1], TP2_SP)),
]


@pytest.mark.parametrize("case", PLANS, ids=lambda c: c.name)
def test_runs_equal_the_reference(four_ranks: RankPool, case: FamilyCase) -> None:
    check_case(four_ranks, case)


WIDE = replace(BERT, model=bert(hidden=64, ffn=160, vocab=512), seq_len=64)
WIDE_VIT = replace(UNMARKED, model=vit(hidden=64, ffn=160, image=32, class_token=False))
LOWERED = [
    replace(WIDE, name="bert cp 2", strategies=CP2),
    replace(WIDE, name="bert cp 4 full", strategies=replace(CP4, recompute="full")),
    replace(WIDE, name="bert cp 2 x tp 2 sp", strategies=replace(TP2_SP, cp=2)),
    replace(WIDE, name="bert ulysses 2 unfused", strategies=ULYSSES2, flash=False),
    replace(WIDE, name="bert hybrid", strategies=replace(HYBRID, recompute="selective")),
    replace(WIDE, name="bert hsdp bf16", strategies=sharded("hsdp:2", 4, cp=2), dtype="bf16"),
    replace(WIDE_VIT, name="vit cp 2", strategies=ends_whole(CP2, LayerStrategy())),
    replace(WIDE_VIT, name="vit ulysses", strategies=ends_whole(ULYSSES4, LayerStrategy())),
]


@pytest.mark.parametrize("case", LOWERED, ids=lambda c: c.name)
def test_runs_issue_what_the_lowering_names(four_ranks: RankPool, case: FamilyCase) -> None:
    check_lowering(four_ranks, case)


HELD = [
    replace(WIDE, name="bert cp 2", strategies=CP2),
    replace(
        WIDE,
        name="bert cp 4 full",
        model=replace(WIDE.model, tie_embeddings=False),
        strategies=replace(CP4, recompute="full"),
    ),
    replace(WIDE, name="bert hybrid", strategies=HYBRID),
    replace(WIDE, name="bert ulysses unfused", strategies=ULYSSES4, flash=False),
    replace(WIDE_VIT, name="vit cp 2", strategies=ends_whole(CP2, LayerStrategy())),
    replace(WIDE_VIT, name="vit ulysses", strategies=ends_whole(ULYSSES2, LayerStrategy())),
]


@pytest.mark.parametrize("case", HELD, ids=lambda c: c.name)
def test_runs_hold_what_is_predicted(four_ranks: RankPool, case: FamilyCase) -> None:
    check_live_bytes(four_ranks, case)
