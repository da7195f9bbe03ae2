"""Losses over a split vocabulary, by chunks of tokens, on real ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.plan_cases import Case, Sizes
from ranks.rank_pools import RankPool
from ranks.split_loss_jobs import ROWS, small_chunks

from shardwright.spec.strategy import LayerStrategy

TP2 = LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
BASE = Case(name="tp2", sizes=Sizes(hidden=64, ffn=160, vocab=334), ranks=2, strategies=TP2,
            seq_len=32)  # fmt: skip
"""A vocabulary of no other test, so that no cache has its layers without chunks."""
CASES = [
    BASE,
    replace(BASE, name="tp2 sp bf16", strategies=TP2_SP, dtype="bf16"),
    replace(BASE, name="tied tp2 sp", strategies=TP2_SP, sizes=replace(BASE.sizes, tied=True)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients_kernels_and_live_bytes(two_ranks: RankPool, case: Case) -> None:
    assert case.micro_batch * case.seq_len % ROWS
    with small_chunks():
        check_lowering(two_ranks, case, job="ranks.split_loss_jobs:record")
        check_live_bytes(two_ranks, case, job="ranks.split_loss_jobs:live_bytes")
    check_case(two_ranks, case, job="ranks.split_loss_jobs:train_chunked")
