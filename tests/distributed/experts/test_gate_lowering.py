"""Gates, balances and capacity: what the cost model names is what ranks issue, evenly routed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from generators.plan_cases import Case
from ranks.expert_runs import ExpertSizes, spread
from ranks.rank_pools import RankPool

from shardwright.spec.model.feed_forward import Balance, Moe
from shardwright.spec.strategy import LayerStrategy

WIDE = {"experts": 8, "ffn": 96}
TOPK = Moe(**WIDE, topk=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
BALANCE = Balance(aux_loss=0.05, z_loss=0.01, bias_rate=0.02, jitter=0.1)
PARTS = {"stages": 2, "micro_batch": 2}


def case(name: str, moe: Moe, strategy: LayerStrategy, **fields: object) -> Case:
    sizes = ExpertSizes(hidden=64, ffn=160, vocab=512, blocks=2, moe=moe)
    return spread(Case(**({"name": name, "sizes": sizes, "seq_len": 128} | fields)), strategy)  # type: ignore[arg-type]


CASES = [
    case("capacity ep4", replace(TOPK, capacity_factor=1.25), LayerStrategy(ep=4)),
    case("probability ep2 etp2", replace(TOPK, capacity_factor=1.0, capacity_order="probability"),
         LayerStrategy(ep=2, etp=2)),
    case("raw tp2 etp2 of shared tokens", replace(TOPK, normalize=False),
         LayerStrategy(tp=2, etp=2)),
    case("switch capacity ep2", Moe(**WIDE, topk=1, gate="switch", capacity_factor=1.0),
         LayerStrategy(ep=2), seq_len=256),
    case("gshard ep2 tp2 sp", replace(TOPK, gate="gshard", capacity_factor=1.25),
         replace(TP2_SP, ep=2), **PARTS),
    case("xmoe ep2", replace(TOPK, gate="xmoe", gate_width=16), LayerStrategy(ep=2)),
    case("expert choice ep4", replace(TOPK, gate="expert_choice"), LayerStrategy(ep=4)),
    case("soft ep2 etp2", Moe(**WIDE, topk=1, gate="soft", slots=8), LayerStrategy(ep=2, etp=2)),
    case("latent ep2", replace(TOPK, latent=32), LayerStrategy(ep=2)),
    case("balance ep2", replace(TOPK, balance=BALANCE), LayerStrategy(ep=2)),
    case("balance of sigmoid tp2 sp", replace(TOPK, score="sigmoid", balance=BALANCE),
         replace(TP2_SP, ep=2, recompute="full"), **PARTS),
    case("balance by sequence", replace(TOPK, balance=replace(BALANCE, per="sequence")),
         LayerStrategy(ep=2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_run_issues_what_is_lowered(four_ranks: RankPool, case: Case) -> None:
    check_lowering(four_ranks, case, job="ranks.expert_jobs:record")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bytes_are_within_two_per_cent(four_ranks: RankPool, case: Case) -> None:
    check_live_bytes(four_ranks, case, job="ranks.expert_jobs:live_bytes")
