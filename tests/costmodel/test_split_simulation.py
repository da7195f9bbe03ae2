"""Simulated steps of split schedules: closed forms, a second simulation, memory as published."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from event_oracle import ends
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import simulator_of
from plan_cases import Case, Sizes
from pricers import Free, Perturbed
from samples import Sample, split_sample

from shardwright.costmodel.explain import breakdown, executed_flops
from shardwright.costmodel.lowering import StageChunk
from shardwright.costmodel.machine import Machine
from shardwright.costmodel.memory import PassKind
from shardwright.costmodel.pass_time import PASS_TERMS, PassTime
from shardwright.costmodel.play import Messages
from shardwright.costmodel.simulate import Simulation, Simulator
from shardwright.costmodel.stage_run import kind_of, together
from shardwright.costmodel.step import step_work
from shardwright.costmodel.trace import simulated_timeline
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.plan import Plan
from shardwright.spec.schedule import SPLIT_KINDS, V_KINDS, Pass, ScheduleKind

SEEDS = st.integers(0, 89)
FORWARD_S, INPUT_S, WEIGHT_S = 2.0, 2.0, 1.0
WORK_S = FORWARD_S + INPUT_S + WEIGHT_S


class _Fixed(Simulator):
    """Passes take the same time on every chunk; the update and the host take none."""

    def pass_time(self, chunk: StageChunk, kind: PassKind, group: str, reach: int) -> PassTime:
        parts = {"whole": INPUT_S + WEIGHT_S, "input": INPUT_S, "weight": WEIGHT_S}
        seconds = FORWARD_S if kind.forward else parts[kind.part]
        return PassTime(seconds, [seconds, *[0.0] * (len(PASS_TERMS) - 1)], 0.0, 0.0)


def pipeline(kind: ScheduleKind, stages: int, batches: int, blocks: int | None = None) -> Plan:
    chunks = 2 if kind in V_KINDS else 1
    case = Case(
        name="split",
        sizes=Sizes(blocks=stages * chunks if blocks is None else blocks),
        ranks=stages,
        stages=stages,
        chunks=chunks,
        kind=kind,
        global_batch=batches,
        micro_batch=1,
    )
    return case.plan()


def fixed_step_s(plan: Plan) -> float:
    """Seconds of the step when only passes take time."""
    chosen = replace(stack("shardwright"), step_s=0.0, launch_s=0.0)
    pricer = Free(Machine(plan.cluster), chosen)
    lowering = Simulator.for_plan(plan, pricer.machine, chosen).lowering
    simulation = _Fixed(lowering, pricer).run(plan)
    assert simulation is not None
    return simulation.step_time_s


@pytest.mark.parametrize(("stages", "batches"), [(2, 4), (3, 8), (4, 8), (6, 20)])
def test_simulated_bubbles_equal_their_closed_forms(stages: int, batches: int) -> None:
    """Sources as in the tests of the orders; a V's chunks take the given times each."""
    bubble_s = (stages - 1) * (FORWARD_S + INPUT_S - WEIGHT_S)
    found_s = fixed_step_s(pipeline("zero_bubble", stages, batches))
    assert found_s == pytest.approx(batches * WORK_S + bubble_s, rel=1e-12)
    whole_s = INPUT_S + WEIGHT_S
    bubble_s = (stages - 1) * (FORWARD_S + whole_s + whole_s - 3 * WEIGHT_S)
    found_s = fixed_step_s(pipeline("dualpipe", stages, batches))
    assert found_s == pytest.approx(2 * batches * WORK_S + bubble_s, rel=1e-12)


@given(SEEDS)
@settings(max_examples=90)
def test_a_second_simulation_agrees(seed: int) -> None:
    """Start of every pass against a heap of events, for stacks whose messages are not in line."""
    s = split_sample(seed)
    messages = Messages(s.plan, s.simulation.chunks, s.simulator.prices)
    if messages.blocking:
        return
    runs, last = s.simulation.stages, s.plan.program.schedule.microbatches - 1
    shares: dict[tuple[int, Pass], float] = {}
    for run in runs:
        for items in together(run.order):
            time_s = run.time_of(tuple(kind_of(item, last) for item in items)).time_s
            shares |= {(run.stage, item): time_s / len(items) for item in items}
    travel = {
        (f, p): messages.seconds(f, p) for f in (True, False) for p in range(messages.positions)
    }
    kind = s.plan.program.schedule.kind
    orders = [run.order for run in runs]
    expected = ends(orders, lambda stage, item: shares[stage, item], travel, kind)
    for run in runs:
        starts = iter(run.starts_s)
        for items in together(run.order):
            for item in items:
                end_s = next(starts) + sum(shares[run.stage, i] for i in items)
                assert end_s == pytest.approx(expected[run.stage, item], rel=1e-9, abs=1e-15)


def again(s: Sample, seed: int) -> Simulation:
    """The sample with some prices higher than they are."""
    source = random.Random(seed)
    factor, share = 1 + 10 ** source.uniform(-3, 1), source.random()
    chosen: dict[object, bool] = {}

    def hits(item: object) -> bool:
        return chosen.setdefault(item, source.random() < share)

    pricer = Perturbed(s.simulator.pricer, factor, hits)
    simulation = Simulator(s.simulator.lowering, pricer).run(s.plan)
    assert simulation is not None
    return simulation


@given(SEEDS)
@settings(max_examples=60)
def test_longer_work_never_shortens_the_step(seed: int) -> None:
    s = split_sample(seed)
    slower_s = again(s, seed).step_time_s
    assert slower_s >= s.simulation.step_time_s * (1 - 1e-12)


@given(SEEDS)
@settings(max_examples=60)
def test_breakdowns_and_timelines_are_sound(seed: int) -> None:
    s = split_sample(seed)
    step_s = s.simulation.step_time_s
    assert sum(breakdown(s.simulation).values()) == pytest.approx(step_s, rel=1e-9)
    timeline = simulated_timeline(s.simulation, s.simulator)
    assert timeline.overlapping() == []
    assert timeline.step_time_s == pytest.approx(step_s, rel=1e-9)
    for flow in timeline.flows:
        source, target = timeline.spans[flow.source], timeline.spans[flow.target]
        assert target.start_s >= source.end_s - 1e-9 * step_s


@given(SEEDS)
@settings(max_examples=40)
def test_equal_plans_give_equal_results(seed: int) -> None:
    s = split_sample(seed)
    fresh = simulator_of(s.space).run(s.plan)
    assert fresh is not None
    assert fresh.step_time_s == s.simulation.step_time_s
    assert fresh.memory == s.simulation.memory


@given(SEEDS)
@settings(max_examples=60)
def test_messages_leave_for_the_stage_that_waits(seed: int) -> None:
    """What one stage sends another receives: as many messages of every size, none to itself."""
    s = split_sample(seed)
    counts: dict[str, Counter[tuple[int, int]]] = {"send": Counter(), "recv": Counter()}
    for run in s.simulation.stages:
        for item in step_work(s.plan, s.space.stack, run.stage):
            if getattr(item, "kind", "") in counts:
                counts[item.kind][item.payload_bytes, item.stride] += 1  # type: ignore[union-attr]
    assert counts["send"] == counts["recv"]
    assert all(distance > 0 for _, distance in counts["send"])


def activation_bytes(kind: ScheduleKind, stages: int, name: str) -> list[int]:
    """Of every stage at its fullest moment; all have as many blocks, the ends are small."""
    chunks = 2 if kind in V_KINDS else 1
    size = 8 // chunks
    case = Case(
        name="memory",
        sizes=Sizes(blocks=8 * stages, hidden=128, heads=4, kv_heads=4, ffn=512),
        ranks=stages,
        stages=stages,
        chunks=chunks,
        kind=kind,
        global_batch=4 * stages,
        micro_batch=1,
        seq_len=64,
        cuts=tuple(1 + size * number for number in range(1, stages * chunks)),
    )
    plan = case.plan()
    simulation = Simulator.for_plan(plan, Machine(plan.cluster), stack(name)).run(plan)
    assert simulation is not None
    return [row.by["activations"] for row in simulation.memory]


@pytest.mark.parametrize("name", ["shardwright", "torchtitan"])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_memory_is_balanced_as_published(stages: int, name: str) -> None:
    """In units of 1F1B's worst stage, which holds p micro-batches.

    ZB-H1 needs as much (Qi et al., 2024, section 2.2), ZBV too, on every stage (Qi et al., 2024,
    V, section 4), DualPipe P + 1 of P chunks (DeepSeek-V3, 2024, table 2; P = 2p).
    """
    worst = activation_bytes("1f1b", stages, name)[0]
    wanted = {"zero_bubble": 1.0, "zbv": 1.0, "dualpipe": 1 + 1 / (2 * stages)}
    for kind, share in wanted.items():
        held = activation_bytes(kind, stages, name)
        assert held == pytest.approx([share * worst] * stages, rel=0.01)


def test_tied_ends_on_one_stage_are_summed_where_they_are() -> None:
    for kind in SPLIT_KINDS:
        plan = replace_tied(pipeline(kind, 2, 4))
        for stage in (0, 1):
            wires = [
                item for item in step_work(plan, stack("shardwright"), stage)
                if getattr(item, "kind", "") == "all_reduce" and getattr(item, "ranks", 0) == 2
                and item.dtype == plan.workload.dtype.master
            ]  # fmt: skip
            assert len(wires) == (kind == "zero_bubble")


def replace_tied(plan: Plan) -> Plan:
    tied = replace(plan.model, tie_embeddings=True)
    return replace(plan, models={"main": tied})


@given(SEEDS)
@settings(max_examples=30)
def test_a_split_backward_does_the_work_of_a_whole_one(seed: int) -> None:
    """Executed FLOPs are those of the lowered layers, however their backward is cut."""
    s = split_sample(seed)
    total = 0
    for run, chunks in zip(s.simulation.stages, s.simulation.chunks, strict=True):
        for item in run.order:
            for number, entry in enumerate(chunks[item.chunk].layers):
                forward = entry.lowered.forward
                work = forward if item.forward else chunks[item.chunk].backward(
                    number, item.micro_batch == 0, item.part
                )  # fmt: skip
                total += work.flops * s.plan.program.stages[run.stage].device_count
    assert total == executed_flops(s.plan, s.simulation)
