"""Techniques on real ranks: the shipped ones, and toys that only tests bring."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.lowering_check import Comparison
from generators.plan_cases import Case, sharded
from kernel_doubles.compiled_layers import with_mode
from ranks.rank_pools import RankPool
from toys.census_price import PRICE as CENSUS_PRICE
from toys.census_run import FADE
from toys.census_value import TECHNIQUE as CENSUS
from toys.census_value import GradientCensus
from toys.rounding_price import PRICE as ROUNDING_PRICE
from toys.rounding_value import TECHNIQUE as ROUNDING
from toys.rounding_value import RoundedInputs
from toys.technique_ranks import STEPS, StatefulRankSuite, TechniqueRankSuite

from shardwright.costmodel.techniques import TECHNIQUES as PRICES
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques import TECHNIQUES as VALUES
from shardwright.spec.techniques.activation_swap import ActivationSwap
from shardwright.spec.techniques.tp_overlap import TensorParallelOverlap

TP2 = LayerStrategy(tp=2, sequence_parallel="megatron")


def census(strategy: LayerStrategy, mode: str) -> LayerStrategy:
    return with_value(strategy, CENSUS.name, GradientCensus(mode=mode))  # type: ignore[arg-type]


def rounded(strategy: LayerStrategy) -> LayerStrategy:
    return with_value(strategy, ROUNDING.name, RoundedInputs())


class TestCompile(TechniqueRankSuite):
    values, prices, name = VALUES, PRICES, "compile"
    cases = (
        Case(name="whole", strategies=with_mode(sharded("zero3", 2, recompute="full"), "default")),
        Case(name="in parts", strategies=with_mode(replace(TP2, recompute="full"), "default")),
    )

    def check_kernels(self, found: Comparison, rank: int) -> None:
        """aot_eager writes no fused kernels: products and collectives are what it shares."""
        assert found.recorded_flops == found.lowered_flops, rank


class TestGradientCensus(StatefulRankSuite):
    values, prices, name = (CENSUS,), (CENSUS_PRICE,), "gradient_census"
    cases = (
        Case(
            name="at once and in place",
            micro_batch=4,
            strategies=[
                LayerStrategy(),
                census(sharded("zero2", 2), "each"),
                census(sharded("zero3", 2), "held"),
                LayerStrategy(),
            ],
        ),
        Case(name="pipeline", stages=2, strategies=census(LayerStrategy(), "held")),
    )

    def test_the_sums_are_those_of_the_gradients(self, two_ranks: RankPool) -> None:
        plan = self.case(0).plan()
        ranks = two_ranks.run("toys.technique_jobs:states", {**self.payload(plan), "steps": 1})
        total = sum(rank["squares"]["1"] for rank in ranks)
        for rank in ranks:
            assert rank["saved"]["gradient_census.1.sum"] == pytest.approx([total], rel=1e-5)
            assert rank["placements"]["gradient_census.1.sum"] == "replicated"
            held = [v for name, v in rank["saved"].items() if ".2." in name]
            assert _sum(held) == pytest.approx(rank["squares"]["2"] * FADE, rel=1e-5)


class TestRoundedInputs(StatefulRankSuite):
    values, prices, name = (ROUNDING,), (ROUNDING_PRICE,), "rounded_inputs"
    exact, loss_bound = False, 2**-9
    cases = (
        Case(name="zero2", strategies=rounded(sharded("zero2", 2))),
        Case(name="tp", strategies=rounded(TP2)),
    )

    def test_hooks_are_called_once_a_pass_and_once_a_step(self, two_ranks: RankPool) -> None:
        plan = self.case(0).plan()
        micro_batches = plan.program.schedule.microbatches
        assert micro_batches > 1
        ranks = two_ranks.run("toys.technique_jobs:states", {**self.payload(plan), "steps": STEPS})
        passes = STEPS * micro_batches
        for rank in ranks:
            for layer in (1, 2):
                *counts, drawn = rank["saved"][f"rounded_inputs.{layer}.counts"]
                assert counts == [passes, passes, *[STEPS] * 4, 2 * passes, 2 * passes]
                assert rank["empty"][f"rounded_inputs.{layer}.counts"] == [*[0] * 8, drawn]


def _sum(value: object) -> float:
    return sum(map(_sum, value)) if isinstance(value, list) else float(value)  # type: ignore[arg-type]


def swapped(strategy: LayerStrategy, share: float) -> LayerStrategy:
    return with_value(strategy, "activation_swap", ActivationSwap(share=share))


class TestActivationSwap(TechniqueRankSuite):
    values, prices, name = VALUES, PRICES, "activation_swap"
    cases = (
        Case(
            name="shares of both kinds",
            strategies=[
                LayerStrategy(),
                swapped(sharded("zero3", 2), 0.5),
                swapped(sharded("zero2", 2), 1.0),
                LayerStrategy(),
            ],
        ),
        Case(name="sequence shards", strategies=swapped(TP2, 0.25)),
        Case(
            name="a ring, then exchanged heads",
            strategies=[
                LayerStrategy(cp=2),
                swapped(LayerStrategy(cp=2), 0.5),
                swapped(LayerStrategy(tp=2, sequence_parallel="ulysses"), 0.25),
                LayerStrategy(cp=2),
            ],
        ),
    )


def chunked(strategy: LayerStrategy, chunks: int) -> LayerStrategy:
    return with_value(strategy, "tp_overlap", TensorParallelOverlap(chunks=chunks))


class TestTensorParallelOverlap(TechniqueRankSuite):
    values, prices, name = VALUES, PRICES, "tp_overlap"
    cases = (
        Case(name="chunks of both kinds", strategies=[TP2, chunked(TP2, 2), chunked(TP2, 8), TP2]),
        Case(name="recomputed", strategies=chunked(replace(TP2, recompute="full"), 4)),
    )
