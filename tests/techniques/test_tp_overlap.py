"""tp_overlap is held to what every technique is, and its price to a simulation of two lanes."""

from __future__ import annotations

import random
from dataclasses import replace

from generators.plan_cases import Case, Sizes
from oracles.brute_force import Restriction, Space
from toys.technique_spaces import small_space
from toys.technique_suite import Refused, TechniqueSuite

from shardwright.api.problem.lossy import unmeasured_notes
from shardwright.costmodel.explain.breakdown import predict
from shardwright.costmodel.explain.hidden_collectives import layer_overlaps
from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.overlap import ChunkPipeline
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.costmodel.techniques import TECHNIQUES as PRICES
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.tp_overlap import TECHNIQUE, TensorParallelOverlap, from_word
from shardwright.spec.workload.workload import DtypeRecord

TP2 = LayerStrategy(tp=2, sequence_parallel="megatron")
WIDE = Sizes(blocks=2, hidden=4096, heads=32, kv_heads=32, ffn=16384, vocab=512)
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


def priced_plan(word: str) -> tuple[Plan, Simulator]:
    strategy = with_value(TP2, "tp_overlap", from_word(word))
    case = Case(name="", sizes=WIDE, ranks=2, micro_batch=4, strategies=strategy, seq_len=1024)
    plan = replace(case.plan(), cluster=parse_cluster("1x2xL40S").cluster)
    stage = plan.program.stages[0]
    devices = (replace(stage.devices[0], device_group=plan.cluster.groups[0].name),)
    program = replace(plan.program, stages=(replace(stage, devices=devices),))
    plan = replace(plan, programs=(program,))
    return plan, Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"))


def test_an_explanation_says_what_of_each_layer_shows() -> None:
    plan, simulator = priced_plan("chunked:2")
    rows = layer_overlaps(plan, simulator)
    block = next(row for row in rows if row.layers == WIDE.blocks)
    assert block.first_layer == 1
    assert 0 < block.forward_s < block.plain_forward_s
    assert 0 < block.backward_s < block.plain_backward_s
    assert block.least_s == block.forward_s + block.backward_s
    assert block.added_s != 0
    plain, simulator = priced_plan("none")
    assert layer_overlaps(plain, simulator) == []


def test_fused_products_reach_from_none_to_all_hidden() -> None:
    predictions = {}
    for word in ("none", "fused"):
        plan, simulator = priced_plan(word)
        simulation = simulator.run(plan)
        assert simulation is not None
        predictions[word] = predict(plan, simulation, simulator, MemoryRule())
    none, fused = predictions["none"], predictions["fused"]
    assert fused.step_time_s == none.step_time_s
    assert fused.step_time_interval_s[1] == none.step_time_interval_s[1]
    (row,) = [r for r in layer_overlaps(plan, simulator) if r.layers == WIDE.blocks]
    assert row.least_s == 0
    microbatches = plan.program.schedule.microbatches
    hidden_s = (row.forward_s + row.backward_s) * row.layers * microbatches
    least = (none.step_time_s - hidden_s) / none.step_time_s * none.step_time_interval_s[0]
    assert abs(fused.step_time_interval_s[0] / least - 1) < 1e-9
    (note,) = unmeasured_notes(plan, PRICES)
    assert (note.path, note.value) == ("unmeasured.tp_overlap", "fused")
    assert unmeasured_notes(priced_plan("chunked:2")[0], PRICES) == ()
