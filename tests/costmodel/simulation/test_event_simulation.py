"""The step span by span: as long as pass by pass, and every stream runs one span at a time."""

from __future__ import annotations

import pytest
from generators.plan_cases import Case, Sizes
from generators.samples import Sample, sample, split_sample
from hypothesis import given, settings
from hypothesis import strategies as st
from published.wrong_pricers import Perturbed

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.event_simulation import STREAMS, simulate_events
from shardwright.costmodel.simulation.pipeline_timing import MessageTimes
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.errors import InputError
from shardwright.spec.report.work_items import Collective
from shardwright.spec.strategy import LayerStrategy

SEEDS = st.integers(0, 149)
EXACT = 1e-9


def no_message_queues(s: Sample) -> bool:
    """Whether every message is over before the same rank can send the next one."""
    messages = MessageTimes(s.plan, s.simulation.chunks, s.simulator.prices)
    longest_s = max(
        messages.seconds(forward, position)
        for forward in (True, False)
        for position in range(messages.positions)
    )
    shortest_s = min(
        time.time_s
        for run in s.simulation.stages
        for kind, time in run.times.items()
        if kind.part != "weight"
    )
    return messages.blocking or longest_s <= shortest_s


def check_spans(s: Sample) -> None:
    if s.plan.program.schedule.kind == "dualpipe":
        return
    simulation, spans = simulate_events(s.simulator, s.plan)
    wanted = s.simulation
    assert spans.overlap_s() <= EXACT * wanted.step_time_s
    assert simulation.step_time_s >= wanted.step_time_s * (1 - EXACT)
    assert simulation.memory == wanted.memory
    if not no_message_queues(s):
        return
    assert simulation.step_time_s == pytest.approx(wanted.step_time_s, rel=EXACT)
    for found, run in zip(simulation.stages, wanted.stages, strict=True):
        assert found.starts_s == pytest.approx(run.starts_s, rel=EXACT, abs=1e-15)
        assert found.end_s == pytest.approx(run.end_s, rel=EXACT)
        assert found.message_s == pytest.approx(run.message_s, rel=EXACT, abs=EXACT * run.end_s)


@given(SEEDS)
@settings(max_examples=80)
def test_spans_take_as_long_as_passes(seed: int) -> None:
    check_spans(sample(seed))


@given(SEEDS)
@settings(max_examples=60)
def test_spans_of_split_backwards_take_as_long_as_passes(seed: int) -> None:
    check_spans(split_sample(seed))


def test_a_message_longer_than_its_passes_waits_for_the_one_ahead() -> None:
    """The one thing that only the event form sees."""
    plan = Case(name="slow", stages=2, ranks=2, kind="gpipe", global_batch=32, micro_batch=1).plan()
    plain = Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"))
    slow = Simulator(plain.lowering, _SlowMessages(plain.pricer, 1e3, lambda item: False))
    by_pass, (by_span, spans) = slow.run(plan), simulate_events(slow, plan)
    assert by_pass is not None
    assert by_span.step_time_s > by_pass.step_time_s * 1.5
    assert spans.overlap_s() <= EXACT * by_span.step_time_s


class _SlowMessages(Perturbed):
    def message(self, size_bytes: int, level: object) -> float:
        return super().message(size_bytes, level) * self._factor  # type: ignore[arg-type]


def test_every_layer_collective_and_message_has_its_spans() -> None:
    """Two blocks a stage under Megatron sequence parallelism: collectives as lowered."""
    strategy = LayerStrategy(tp=2, sequence_parallel="megatron")
    batches = 4
    plan = Case(
        name="count",
        sizes=Sizes(blocks=4),
        ranks=4,
        stages=2,
        strategies=strategy,
        global_batch=batches,
        micro_batch=1,
        boundaries=(3,),
    ).plan()
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"))
    _, spans = simulate_events(simulator, plan)
    streams = [STREAMS[number] for number in spans.streams.tolist()]
    lowered = [
        layer.lowered
        for chunks in simulator.lowering.stages(plan)
        for c in chunks
        for layer in c.layers
    ]
    collectives = sum(
        isinstance(entry.work, Collective)
        for each in lowered
        for entry in (*each.forward.entries, *each.backward.entries)
    )
    assert streams.count("collectives") == collectives * batches
    assert collectives >= 8 * 4
    assert streams.count("messages forward") == streams.count("messages backward") == batches
    assert spans.events == 2 * len(streams)
    assert (spans.durations_s >= 0).all()


def test_overlapping_pairs_have_no_spans() -> None:
    s = next(x for x in map(split_sample, range(9)) if x.plan.program.schedule.kind == "dualpipe")
    with pytest.raises(InputError, match="in pairs"):
        simulate_events(s.simulator, s.plan)
