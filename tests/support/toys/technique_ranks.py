"""Checks of every technique with a run, on real ranks: a test class inherits them.

What it prices is what it does, item by item and byte by byte; its states come back from where they
were put; and a run with it is the one without it, within what the technique says of itself.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import replace
from typing import Any

import pytest
from checks.lowering_check import Comparison, check_kernels_equal, compare, executor_stack
from checks.run_checks import check_run
from generators.plan_cases import Case, Sizes
from ranks.rank_pools import RankPool

from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.technique import TechniquePrices
from shardwright.spec.plan.plan import Plan
from shardwright.spec.technique import Values

SIZES = Sizes(blocks=2, hidden=64, ffn=160, vocab=512)
SEQ_LEN, STEPS = 64, 2


class TechniqueRankSuite(ABC):
    """The checks of one technique on two ranks; ``cases`` hold it.

    ``record_job`` counts the kernels and collectives of a step.
    """

    values: Values
    prices: TechniquePrices
    name: str
    cases: tuple[Case, ...]
    sizes = SIZES
    exact = True
    loss_bound = 0.0
    compiler = "aot_eager"
    record_job = "toys.technique_jobs:record"

    def case(self, number: int) -> Case:
        given = self.cases[number % len(self.cases)]
        return replace(given, sizes=self.sizes, seq_len=SEQ_LEN, ranks=2, techniques=self.values)

    def payload(self, plan: Plan) -> dict[str, Any]:
        return {"plan": plan.to_document(), "technique": self.name, "compiler": self.compiler}

    @pytest.mark.parametrize("number", range(2))
    def test_what_is_priced_is_what_runs(self, two_ranks: RankPool, number: int) -> None:
        case = self.case(number)
        plan = case.plan()
        for rank, record in enumerate(two_ranks.run(self.record_job, self.payload(plan))):
            found = compare(case, plan, record, techniques=self.prices)
            assert found.recorded_flops == found.lowered_flops
            assert found.collectives_apart == {}
            self.check_kernels(found, rank)

    def check_kernels(self, found: Comparison, rank: int) -> None:
        """The recorded kernels are the lowered ones."""
        check_kernels_equal(found, rank)

    @pytest.mark.parametrize("number", range(2))
    def test_a_run_is_the_reference(self, two_ranks: RankPool, number: int) -> None:
        case = self.case(number)
        settings = {"steps": STEPS, "random_tokens": True, "follow_bytes": False}
        payload = {**self.payload(case.plan()), **settings}
        if self.exact:
            more = {k: v for k, v in payload.items() if k != "plan"}
            check_run(two_ranks, case.plan(), "toys.technique_jobs:train_with", **more)
            return
        plain = self.without(case).plan()
        runs = [
            two_ranks.run("toys.technique_jobs:train_with", {**payload, "plan": p.to_document()})[0]
            for p in (case.plan(), plain)
        ]
        with_it, without = (run["measured"]["losses"] for run in runs)
        assert with_it != without
        assert max(abs(a - b) / b for a, b in zip(with_it, without, strict=True)) < self.loss_bound

    @staticmethod
    def without(case: Case) -> Case:
        """A case with every technique off."""
        strategies = [replace(one, techniques={}) for one in case.layer_strategies()]
        return replace(case, strategies=strategies, program=())


class StatefulRankSuite(TechniqueRankSuite):
    """The checks of a technique that keeps something from step to step."""

    def test_states_come_back(self, two_ranks: RankPool) -> None:
        payload = {**self.payload(self.case(0).plan()), "steps": STEPS}
        first, again = (two_ranks.run("toys.technique_jobs:states", payload) for _ in range(2))
        assert first == again  # the same seed makes the same run
        for rank in first:
            assert rank["loaded"] == rank["saved"]
            assert {name.partition(".")[0] for name in rank["saved"]} <= {self.name}
            assert rank["saved"]
            assert rank["empty"] != rank["saved"]
            assert len(rank["refusals"]) == 3
            assert all(text.startswith("state ") for text in rank["refusals"])
            replicated = {n for n, kind in rank["placements"].items() if kind == "replicated"}
            for name in replicated & {*first[0]["saved"]}:
                assert rank["saved"][name] == first[0]["saved"][name]

    def test_its_bytes_are_the_priced_ones(self, two_ranks: RankPool) -> None:
        case = self.case(0)
        followed = [
            two_ranks.run(
                "toys.technique_jobs:record", {**self.payload(c.plan()), "followed": True}
            )
            for c in (case, self.without(case))
        ]
        expected = self.resident_bytes(case.plan())
        assert expected > 0
        for with_it, plain in zip(*followed, strict=True):
            assert with_it["resident_bytes"] - plain["resident_bytes"] == expected

    def resident_bytes(self, plan: Plan) -> int:
        """Priced bytes of a rank of the first stage from step to step."""
        values, software = plan.program.techniques, executor_stack(True)
        lowering = Lowering(plan.model, plan.workload, software, self.prices, values)
        chunks = lowering.stage(plan, 0)
        units = (entry.unit for chunk in chunks for entry in chunk.layers)
        return sum(unit.added_bytes for unit in units if unit is not None)
