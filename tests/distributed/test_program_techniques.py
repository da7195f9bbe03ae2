"""Techniques of whole programs on real ranks, which only tests bring."""

from __future__ import annotations

from pathlib import Path

import pytest
from generators.plan_cases import Case, sharded
from ranks.rank_pools import RankPool
from toys.programs.averaging_price import PRICE as AVERAGING_PRICE
from toys.programs.averaging_value import TECHNIQUE as AVERAGING
from toys.programs.averaging_value import AveragedWeights
from toys.programs.signs_price import PRICE as SIGNS_PRICE
from toys.programs.signs_value import TECHNIQUE as SIGNS
from toys.programs.signs_value import SignUpdates
from toys.technique_ranks import STEPS, StatefulRankSuite, TechniqueRankSuite

from shardwright.spec.strategy import LayerStrategy

TP2 = LayerStrategy(tp=2, sequence_parallel="megatron")


class TestAveragedWeights(StatefulRankSuite):
    values, prices, name = (AVERAGING,), (AVERAGING_PRICE,), "averaged_weights"
    exact, loss_bound = False, 0.05
    cases = (
        Case(name="zero0", program=((AVERAGING.name, AveragedWeights(every=2)),)),
        Case(
            name="narrow",
            strategies=[TP2, LayerStrategy(), LayerStrategy(), TP2],
            program=((AVERAGING.name, AveragedWeights(every=2, pull=0.5)),),
        ),
    )

    def test_replicas_differ_until_they_average(self, two_ranks: RankPool) -> None:
        plan = self.case(0).plan()
        ranks = two_ranks.run(
            "toys.programs.program_jobs:weights_by_step", {**self.payload(plan), "steps": 4}
        )
        for step in range(4):
            before = [rank["before"][step] for rank in ranks]
            after = [rank["after"][step] for rank in ranks]
            assert before[0] != before[1]
            if step % 2 == 0:
                assert after == before
                continue
            mean = [(a + b) / 2 for a, b in zip(*before, strict=True)]
            assert after[0] == after[1]
            assert after[0] == pytest.approx(mean, rel=1e-6, abs=1e-9)

    def test_a_resumed_run_is_the_whole_one(self, two_ranks: RankPool, tmp_path: Path) -> None:
        """Stopped after an odd step, when replicas differ: each has its own weights back."""
        payload = {**self.payload(self.case(0).plan()), "random_tokens": True}
        payload |= {"steps": 6, "folder": str(tmp_path), "follow_bytes": False}
        result, *_ = two_ranks.run("toys.programs.program_jobs:resumed", payload)
        assert result["parts"] == result["whole"]


class TestSignUpdates(TechniqueRankSuite):
    values, prices, name = (SIGNS,), (SIGNS_PRICE,), "sign_updates"
    exact, loss_bound = False, 0.05
    cases = (
        Case(name="zero1", strategies=sharded("zero1", 2), program=((SIGNS.name, SignUpdates()),)),
        Case(name="tp", strategies=TP2, program=((SIGNS.name, SignUpdates()),)),
    )

    def test_weights_move_along_signs(self, two_ranks: RankPool) -> None:
        payload = {**self.payload(self.case(0).plan()), "steps": STEPS}
        for rank in two_ranks.run("toys.programs.program_jobs:weights_by_step", payload):
            assert rank["along_signs"]
