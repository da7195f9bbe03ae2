"""Adapters in BERT and ViT: parity, work as lowered, bytes as predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.family_cases import FamilyCase, bert, vit
from generators.plan_cases import sharded
from ranks.rank_pools import RankPool

from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.training import Lora

FILLED_JOB = "ranks.weight_jobs:with_filled_adapters"
LORA = Lora(rank=4, alpha=8.0, targets=("query", "key", "value", "output", "up", "down"))
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
ULYSSES2 = LayerStrategy(tp=2, sequence_parallel="ulysses")
BERT = FamilyCase(name="", model=bert(hidden=64, ffn=160, vocab=512), seq_len=64, adapters=LORA)
VIT = FamilyCase(name="", model=vit(hidden=64, ffn=160, image=28), adapters=LORA)
CASES = [
    replace(BERT, name="bert zero3", strategies=sharded("zero3", 4)),
    replace(BERT, name="bert tp 2 sp", strategies=replace(TP2_SP, recompute="full")),
    replace(BERT, name="bert cp 2", strategies=sharded("zero1", 4, cp=2)),
    replace(
        BERT,
        name="bert pp 2 ulysses unfused",
        strategies=ULYSSES2,
        stages=2,
        micro_batch=2,
        boundaries=(3,),
        flash=False,
    ),
    replace(VIT, name="vit tp 2", strategies=LayerStrategy(tp=2)),
    replace(VIT, name="vit ulysses 2", strategies=(*[ULYSSES2] * 5, LayerStrategy())),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_adapters_train_as_in_one_process(four_ranks: RankPool, case: FamilyCase) -> None:
    for job in (TRAIN_JOB, FILLED_JOB):
        check_case(four_ranks, case, job)


@pytest.mark.parametrize("case", CASES[:5], ids=lambda c: c.name)
def test_the_work_is_the_lowered_work(four_ranks: RankPool, case: FamilyCase) -> None:
    check_lowering(four_ranks, case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_live_bytes_are_the_predicted_ones(four_ranks: RankPool, case: FamilyCase) -> None:
    check_live_bytes(four_ranks, case)
