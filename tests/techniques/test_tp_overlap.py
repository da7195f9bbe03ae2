"""tp_overlap is held to what every technique is, and its price to a simulation of two lanes."""

from __future__ import annotations

import random

from oracles.brute_force import Restriction, Space
from toys.technique_spaces import small_space
from toys.technique_suite import Refused, TechniqueSuite

from shardwright.costmodel.pricing.overlap import ChunkPipeline
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.tp_overlap import TECHNIQUE, TensorParallelOverlap
from shardwright.spec.workload.workload import DtypeRecord

TP2 = LayerStrategy(tp=2, sequence_parallel="megatron")
SPLIT = (
    Restriction(axis="recompute", allowed=("none",)),
    Restriction(axis="cp", allowed=(1,)),
    Restriction(axis="schedule", allowed=("1f1b",)),
    Restriction(axis="micro_batch", allowed=(1, 2)),
)


class TestTensorParallelOverlap(TechniqueSuite):
    known = SHIPPED
    name = "tp_overlap"
    base, ranks = TP2, 2
    refused = (
        Refused(word="chunked:2", because="Megatron's sequence parallelism"),
        Refused(
            word="fused", because="sequence parallelism", strategy=LayerStrategy(tp=2), ranks=2
        ),
        Refused(
            word="chunked:4",
            because="fp8",
            strategy=TP2,
            ranks=2,
            dtype=DtypeRecord.from_shorthand("fp8"),
        ),
    )

    def spaces(self) -> list[Space]:
        words = ("none", "chunked:2", "chunked:4", "fused")
        return [small_space(SHIPPED, self.name, words, *SPLIT)]


def test_chunks_divide_the_tokens_of_a_rank() -> None:
    strategy = with_value(TP2, "tp_overlap", TensorParallelOverlap(chunks=8))
    assert TECHNIQUE.token_violation(strategy, 64) is None
    assert TECHNIQUE.token_violation(strategy, 24) == (
        "tp_overlap chunked:8 does not divide the 12 tokens of a rank"
    )


def test_chunks_are_priced_as_two_lanes_in_order() -> None:
    source = random.Random(0)
    for _ in range(200):
        chunks = source.choice((2, 4, 8))
        wire, product = source.random(), source.random()
        gathers, scatters = ChunkPipeline(), ChunkPipeline()
        exposed = [0.0, 0.0]
        for chunk in range(chunks):
            exposed[0] += gathers.gather(wire, chunk)
            gathers.compute(product)
            scatters.compute(product)
            exposed[1] += scatters.scatter(wire, chunk == chunks - 1)
        total = wire + product + (chunks - 1) * max(wire, product)
        for seconds in exposed:
            assert abs(chunks * product + seconds - total) < 1e-12
