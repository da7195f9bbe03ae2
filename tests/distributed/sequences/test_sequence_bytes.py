"""Traced bytes of runs that split the sequence against the simulated peak of their stage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from generators.plan_cases import Case, Sizes, sharded
from ranks.rank_pools import RankPool

from shardwright.spec.strategy import LayerStrategy

SIZES = Sizes(hidden=64, ffn=160, vocab=512, kv_heads=4)
CP2, CP4 = LayerStrategy(cp=2), LayerStrategy(cp=4)
ULYSSES2 = LayerStrategy(tp=2, sequence_parallel="ulysses")
ULYSSES4 = LayerStrategy(tp=4, sequence_parallel="ulysses")
HYBRID = replace(ULYSSES2, cp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
BASE = Case(name="", sizes=SIZES, seq_len=128)
UNIFORM = {
    "cp 2": CP2,
    "cp 4": CP4,
    "cp 2 selective": replace(CP2, recompute="selective"),
    "cp 2 full": replace(CP2, recompute="full"),
    "cp 2 x tp 2 sp": replace(TP2_SP, cp=2),
    "ulysses 2": ULYSSES2,
    "ulysses 4 selective": replace(ULYSSES4, recompute="selective"),
    "ulysses 2 full": replace(ULYSSES2, recompute="full"),
    "cp 2 x ulysses 2": HYBRID,
    "cp 2 zero3": sharded("zero3", 4, cp=2),
}
CASES = [
    *(replace(BASE, name=name, strategies=strategy) for name, strategy in UNIFORM.items()),
    replace(BASE, name="cp 2 zero3 bf16", dtype="bf16", strategies=UNIFORM["cp 2 zero3"]),
    replace(BASE, name="two stages", strategies=CP2, stages=2, micro_batch=2),
    replace(BASE, name="seams", strategies=(CP2, ULYSSES4, CP4, TP2_SP, HYBRID, CP2)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_second_step_is_within_two_per_cent(four_ranks: RankPool, case: Case) -> None:
    check_live_bytes(four_ranks, case)
