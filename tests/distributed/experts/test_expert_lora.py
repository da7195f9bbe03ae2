"""Adapters beside experts and on latent attention, on real ranks: parity, work, bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from checks.run_checks import check_run
from generators.plan_cases import Case
from ranks.expert_runs import (
    DEEPSEEK,
    DIRECT_LATENT,
    LATENT_DENSE,
    MIXTRAL,
    QWEN2,
    QWEN3,
    ExpertSizes,
    spread,
)
from ranks.rank_pools import RankPool

from shardwright.executor.launch.pool import TRAIN_JOB
from shardwright.spec.errors import ShardwrightError
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.training import Lora

FILLED_JOB = "ranks.weight_jobs:with_filled_adapters"
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
PLAIN = Lora(rank=4, alpha=8.0, targets=("query", "key", "value", "output"))
SHARED = Lora(rank=4, targets=("query", "value", "shared_gate", "shared_up", "shared_down"))
LATENT = Lora(
    rank=4, alpha=8.0, targets=("query", "query_down", "query_up", "kv_down", "kv_up", "output")
)
KEYS = Lora(rank=4, targets=("kv_down", "up"))
BUBBLE: dict[str, Any] = {"stages": 2, "micro_batch": 2, "kind": "zero_bubble"}
V_SHAPE: dict[str, Any] = {**BUBBLE, "kind": "zbv", "chunks": 2}


def case(
    name: str,
    sizes: ExpertSizes,
    adapters: Lora,
    strategy: LayerStrategy,
    shard: str = "zero0",
    **fields: Any,
) -> Case:
    return spread(Case(name=name, sizes=sizes, adapters=adapters, **fields), strategy, shard)


CASES = [
    case("mixtral ep2", MIXTRAL, PLAIN, LayerStrategy(ep=2)),
    case("qwen3 ep4 zero1", QWEN3, PLAIN, LayerStrategy(ep=4), "zero1"),
    case("mixtral tp2 sp ep2 zero3", MIXTRAL, PLAIN, replace(TP2_SP, ep=2), "zero3"),
    case("mixtral ep2 bf16", MIXTRAL, PLAIN, LayerStrategy(ep=2), dtype="bf16"),
    case("shared experts etp2 zero2", QWEN2, SHARED, LayerStrategy(etp=2), "zero2"),
    case("shared tokens", QWEN2, SHARED, LayerStrategy(tp=2, etp=2, recompute="full")),
    case("deepseek ep2 hsdp", DEEPSEEK, LATENT, LayerStrategy(ep=2), "hsdp:2"),
    case("deepseek tp2 sp ep2", DEEPSEEK, LATENT, replace(TP2_SP, ep=2, recompute="full")),
    case("deepseek few tp2 sp", DEEPSEEK, KEYS, replace(TP2_SP, etp=2), "zero1"),
    case("latent tp2", LATENT_DENSE, LATENT, LayerStrategy(tp=2, recompute="selective")),
    case("direct latent tp2 sp", DIRECT_LATENT, LATENT, TP2_SP, "zero3"),
    case("pipeline", MIXTRAL, PLAIN, LayerStrategy(ep=2), "zero1", stages=2, micro_batch=2),
    case("zero_bubble", DEEPSEEK, LATENT, replace(TP2_SP, ep=2), **BUBBLE),
    case("zbv", MIXTRAL, PLAIN, LayerStrategy(ep=2), "zero2", **V_SHAPE),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_adapters_train_as_in_one_process(four_ranks: RankPool, case: Case) -> None:
    for job in (TRAIN_JOB, FILLED_JOB):
        found = check_run(four_ranks, case.plan(), job)["verify"]
        assert "adapter" in found["worst_tensor"]  # nothing else has a gradient


def wide(case: Case) -> Case:
    """The same with wider layers, so that bookkeeping is small beside them."""
    sizes = case.sizes
    assert isinstance(sizes, ExpertSizes)
    moe = sizes.moe
    if moe is not None:
        moe = replace(moe, ffn=96, experts=8, shared_ffn=96 if moe.shared_ffn else 0)
    return replace(case, sizes=replace(sizes, hidden=64, ffn=160, vocab=512, moe=moe), seq_len=128)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_work_is_the_lowered_work(four_ranks: RankPool, case: Case) -> None:
    check_lowering(four_ranks, wide(case), job="ranks.expert_jobs:record")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_live_bytes_are_the_predicted_ones(four_ranks: RankPool, case: Case) -> None:
    check_live_bytes(four_ranks, wide(case), job="ranks.expert_jobs:live_bytes")


def test_adapters_on_experts_are_refused_by_name(two_ranks: RankPool) -> None:
    own = replace(PLAIN, targets=("query", "experts_up"))
    refused = case("experts", MIXTRAL, own, LayerStrategy(ep=2), ranks=2)
    payload = {"plan": refused.plan().to_document(), "random_tokens": True}
    with pytest.raises(ShardwrightError, match="lora beside experts_up") as info:
        two_ranks.run(TRAIN_JOB, payload)
    assert info.value.exit_code == 2
