"""Experts and latent attention: what the cost model names is what ranks issue, evenly routed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.lowering_check import check_lowering
from generators.plan_cases import Case, sharded
from ranks.expert_runs import (
    DEEPSEEK,
    DIRECT_LATENT,
    GROUPED_V3,
    LATENT_DENSE,
    MIXTRAL,
    QWEN2,
    ExpertSizes,
    spread,
)
from ranks.rank_pools import RankPool

from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.strategy import LayerStrategy

SEQ_LEN = 128
MIN_BYTES_SHARE = 0.99
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")


def wide(sizes: ExpertSizes, **moe: object) -> ExpertSizes:
    """The same model with wider layers, so that bookkeeping is small beside them."""
    own = None if sizes.moe is None else replace(sizes.moe, ffn=96, experts=8, **moe)  # type: ignore[arg-type]
    return replace(sizes, hidden=64, ffn=160, vocab=512, blocks=2, moe=own)


BASE = Case(name="", sizes=wide(MIXTRAL), seq_len=SEQ_LEN)


def case(
    name: str, sizes: ExpertSizes, strategy: LayerStrategy, shard: str = "zero0", **fields: object
) -> Case:
    shaped = replace(BASE, name=name, sizes=sizes, **fields)  # type: ignore[arg-type]
    return spread(shaped, strategy, shard)


MIXTURE, SHARED = wide(MIXTRAL), wide(QWEN2, shared_ffn=96)
DEEP = wide(DEEPSEEK, shared_ffn=96)
GELU = wide(replace(MIXTRAL, moe=Moe(experts=8, topk=2, ffn=96, activation="gelu_tanh")))
LATENT, DIRECT = wide(LATENT_DENSE), wide(DIRECT_LATENT)
PARTS = {"stages": 2, "micro_batch": 2}
BUBBLE = {**PARTS, "kind": "zero_bubble"}
V_SHAPE = {**PARTS, "kind": "zbv", "chunks": 2}
PAIRS = {**V_SHAPE, "kind": "dualpipe", "global_batch": 12}
CASES = [
    case("one part", MIXTURE, LayerStrategy()),
    case("ep2", MIXTURE, LayerStrategy(ep=2)),
    case("ep4 zero1", MIXTURE, LayerStrategy(ep=4), "zero1"),
    case("ep2 zero3", MIXTURE, LayerStrategy(ep=2), "zero3"),
    case("ep2 zero2", GELU, LayerStrategy(ep=2), "zero2"),
    case("ep2 hpz", MIXTURE, LayerStrategy(ep=2), "hpz:2"),
    case("ep2 hsdp", MIXTURE, LayerStrategy(ep=2), "hsdp:2"),
    case("etp2", MIXTURE, LayerStrategy(etp=2)),
    case("ep2 etp2", MIXTURE, LayerStrategy(ep=2, etp=2), "zero1"),
    case("tp2 sp ep2", MIXTURE, replace(TP2_SP, ep=2), "zero3"),
    case("tp2 sp ep4", MIXTURE, replace(TP2_SP, ep=4)),
    case("tp2 etp2 of shared tokens", MIXTURE, LayerStrategy(tp=2, etp=2)),
    case("tp2 etp2 of shared tokens, again", SHARED, LayerStrategy(tp=2, etp=2, recompute="full")),
    case("shared experts", SHARED, replace(TP2_SP, ep=2)),
    case("full", MIXTURE, LayerStrategy(ep=2, recompute="full"), "zero3"),
    case("selective ops", SHARED, LayerStrategy(ep=2, etp=2, recompute="selective-ops")),
    case("full with parts", SHARED, LayerStrategy(ep=2, etp=2, recompute="full")),
    case("selective", MIXTURE, LayerStrategy(ep=4, recompute="selective")),
    case("groups", wide(GROUPED_V3), LayerStrategy(ep=2)),
    case("pipeline", MIXTURE, LayerStrategy(ep=2), "zero1", **PARTS),
    case("zero_bubble", MIXTURE, LayerStrategy(ep=2), "zero3", **BUBBLE),
    case(
        "zero_bubble of shared tokens",
        SHARED,
        LayerStrategy(tp=2, etp=2, recompute="full"),
        **BUBBLE,
    ),
    case("zbv", MIXTURE, LayerStrategy(etp=2), "zero2", dtype="bf16", **V_SHAPE),
    case("dualpipe", DEEP, replace(TP2_SP, ep=2), **PAIRS),
    case("bf16", MIXTURE, LayerStrategy(ep=2), "zero1", dtype="bf16"),
    case("deepseek", DEEP, LayerStrategy(ep=2)),
    case("deepseek tp2 sp", DEEP, replace(TP2_SP, ep=2, recompute="full"), "zero1"),
    case("latent", LATENT, LayerStrategy()),
    case("latent unfused", LATENT, LayerStrategy(tp=2), flash=False),
    case("latent tp2", LATENT, LayerStrategy(tp=2)),
    case("latent tp2 sp", LATENT, replace(TP2_SP, recompute="selective")),
    case("direct latent tp2 sp", DIRECT, TP2_SP, "zero3"),
    replace(
        BASE,
        name="mixed",
        sizes=replace(MIXTURE, dense=1),
        strategies=(sharded("zero1", 4), TP2_SP, LayerStrategy(ep=4), LayerStrategy(tp=2)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_run_issues_what_is_lowered(four_ranks: RankPool, case: Case) -> None:
    check_lowering(four_ranks, case, job="ranks.expert_jobs:record")
