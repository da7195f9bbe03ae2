"""Planned addresses on real ranks: every request of a pass from the arena, nothing changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from generators.plan_cases import Case, Sizes, sharded
from ranks.rank_pools import RankPool
from toys.technique_ranks import TechniqueRankSuite

from shardwright.api.execution.addresses import RECORD_JOB
from shardwright.costmodel.techniques.address_plan import TECHNIQUE as PRICE
from shardwright.planner.addresses.ranks import planned_addresses
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.allocation_trace import AllocationTrace
from shardwright.spec.report.planned_addresses import PlannedAddresses, keep_addresses
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.techniques.address_plan import NAME, TECHNIQUE, AddressPlan

PLANNED = ((NAME, AddressPlan()),)
TP2 = LayerStrategy(tp=2, sequence_parallel="megatron")
SIZES = Sizes(blocks=3, hidden=128, heads=4, kv_heads=2, ffn=256, vocab=512)
STEPS = 6
RESIDENT = 0.01


def keep(pool: RankPool, plan: Plan) -> PlannedAddresses:
    """Record, solve and keep the addresses of a plan, as ``plan execute`` does."""
    documents = pool.run(RECORD_JOB, {"plan": plan.to_document(), "random_tokens": True})
    found = planned_addresses(plan.hash, [AllocationTrace.from_document(d) for d in documents])
    keep_addresses(found)
    return found


class TestAddressPlan(TechniqueRankSuite):
    values, prices, name = (TECHNIQUE,), (PRICE,), NAME
    cases = (
        Case(name="zero1", strategies=sharded("zero1", 2), program=PLANNED),
        Case(name="tp", strategies=TP2, program=PLANNED),
    )

    @pytest.fixture(autouse=True)
    def kept(self, two_ranks: RankPool) -> None:
        """Addresses of every plan of the suite."""
        for number in range(len(self.cases)):
            keep(two_ranks, self.case(number).plan())


def losses(pool: RankPool, plan: Plan) -> tuple[list[float], dict[str, Any]]:
    payload = {"plan": plan.to_document(), "steps": STEPS, "random_tokens": True}
    result = pool.run("shardwright.executor.train.job:train", {**payload, "follow_bytes": False})[0]
    return result["measured"]["losses"], result.get("techniques", {})


def test_all_requests_of_passes_come_from_the_arena(two_ranks: RankPool) -> None:
    case = Case(name="zero3", ranks=2, sizes=SIZES, seq_len=64, strategies=sharded("zero3", 2))
    found = keep(two_ranks, replace(case, program=PLANNED).plan())
    planned, reports = losses(two_ranks, replace(case, program=PLANNED).plan())
    plain, nothing = losses(two_ranks, case.plan())
    assert planned == plain
    assert nothing == {}
    for rank, report in enumerate(reports[NAME]):
        addresses = found.rank(rank)
        assert report["served"] == (STEPS - 1) * len(addresses.sizes)
        assert report["unplanned"] == report["lasting"] == 0
        assert report["arena_bytes"] == addresses.arena_bytes
        assert report["resident_bytes"] == pytest.approx(addresses.arena_bytes, rel=RESIDENT)
