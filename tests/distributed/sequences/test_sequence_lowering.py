"""What runs that split the sequence issue is what the cost model names, item by item."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.lowering_check import check_lowering
from generators.plan_cases import Case, Sizes, random_case, sharded
from ranks.rank_pools import RankPool

from shardwright.spec.strategy import LayerStrategy

SIZES = Sizes(hidden=64, ffn=160, vocab=512, kv_heads=4)
FEW_HEADS = replace(SIZES, kv_heads=2)
GPT2 = replace(SIZES, gpt2=True, tied=True)
CP2, CP4 = LayerStrategy(cp=2), LayerStrategy(cp=4)
TP2, TP2_SP = LayerStrategy(tp=2), LayerStrategy(tp=2, sequence_parallel="megatron")
ULYSSES2 = LayerStrategy(tp=2, sequence_parallel="ulysses")
ULYSSES4 = LayerStrategy(tp=4, sequence_parallel="ulysses")
HYBRID = replace(ULYSSES2, cp=2)
SEAM = (CP2, LayerStrategy(), CP2, ULYSSES2, TP2, CP2)
BASE = Case(name="", sizes=SIZES, seq_len=64)


def uniform(name: str, strategy: LayerStrategy, **fields: object) -> Case:
    return replace(BASE, name=name, strategies=strategy, **fields)  # type: ignore[arg-type]


CASES = [
    uniform("cp 2", CP2),
    uniform("cp 4", CP4),
    uniform("ulysses 2", ULYSSES2),
    uniform("ulysses 4", ULYSSES4),
    uniform("cp 2 x ulysses 2", HYBRID),
    uniform("fewer key heads", HYBRID, sizes=FEW_HEADS),
    uniform("gpt2 in a ring", CP2, sizes=GPT2),
    uniform("gpt2 in a ring of tp sp", replace(TP2_SP, cp=2), sizes=GPT2),
    uniform("gpt2 with ulysses", ULYSSES2, sizes=GPT2),
    uniform("heads with norms", ULYSSES2, sizes=replace(SIZES, qk_norm=True)),
    uniform("unfused ulysses", ULYSSES2, flash=False),
    uniform("unfused ulysses, fewer key heads", ULYSSES2, sizes=FEW_HEADS, flash=False),
    uniform("cp 2 zero3 bf16", sharded("zero3", 4, cp=2), dtype="bf16"),
    uniform("ulysses bf16", ULYSSES2, dtype="bf16"),
    uniform("cp 2 full", replace(CP2, recompute="full")),
    uniform("cp 2 x ulysses 2 selective", replace(HYBRID, recompute="selective")),
    replace(
        BASE, name="mixed", strategies=(CP2, TP2, CP2, ULYSSES4, replace(TP2_SP, cp=2), HYBRID)
    ),
    uniform("two stages", CP2, stages=2, micro_batch=2),
    replace(BASE, name="two stages, other splits", strategies=SEAM, stages=2, micro_batch=2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_named_plans(four_ranks: RankPool, case: Case) -> None:
    check_lowering(four_ranks, case)


@pytest.mark.parametrize("strategy", [CP2, ULYSSES2, HYBRID], ids=["ring", "ulysses", "both"])
def test_fused_kernels(four_ranks: RankPool, strategy: LayerStrategy) -> None:
    """As on a device, interpreted: turned in place, gradients in other orders."""
    tiny = replace(SIZES, blocks=1, vocab=300)
    case = replace(BASE, sizes=tiny, strategies=strategy, seq_len=16, global_batch=4)
    check_lowering(four_ranks, case, fused=True)


@pytest.mark.parametrize("seed", range(6))
def test_random_plans(four_ranks: RankPool, seed: int) -> None:
    case = random_case(seed, sizes=SIZES, splits=True)
    check_lowering(four_ranks, replace(case, seq_len=BASE.seq_len))


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(6, 60))
def test_many_random_plans(four_ranks: RankPool, seed: int) -> None:
    case = random_case(seed, sizes=SIZES, splits=True)
    check_lowering(four_ranks, replace(case, seq_len=BASE.seq_len))
