"""Simulated steps of split schedules: closed forms, a second simulation, memory as published."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from checks.simulation_checks import check_starts
from generators.samples import Sample, split_sample
from generators.schedule_cases import (
    PassSeconds,
    activation_bytes,
    bubble_s,
    fixed_step_s,
    pipeline,
    published_share,
    usual_chunks,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.brute_force import simulator_of
from published.wrong_pricers import Perturbed

from shardwright.costmodel.explain.breakdown import breakdown, executed_flops
from shardwright.costmodel.lowering.step_work import step_work
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.costmodel.simulation.timeline import simulated_timeline
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.plan.plan import Plan
from shardwright.spec.schedules.action_text import format_actions
from shardwright.spec.schedules.stage_order import ALL_KINDS, SPLIT_KINDS, ScheduleKind

SEEDS = st.integers(0, 44)


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize(("stages", "batches"), [(2, 4), (3, 9), (4, 8), (6, 24)])
def test_simulated_bubbles_equal_their_closed_forms(
    kind: ScheduleKind, stages: int, batches: int
) -> None:
    for forward, backward, weight in ((1, 1, 1), (2, 2, 1), (2, 3, 1)):
        times = PassSeconds(forward=forward, input=backward, weight=weight)
        wanted_s = bubble_s(kind, stages, times)
        if wanted_s is None:
            continue
        found_s = fixed_step_s(pipeline(kind, stages, batches), times)
        work_s = batches * usual_chunks(kind) * times.work_s
        assert found_s - work_s == pytest.approx(wanted_s, rel=1e-12)


@given(SEEDS)
@settings(max_examples=45)
def test_a_second_simulation_agrees(seed: int) -> None:
    check_starts(split_sample(seed))


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
@settings(max_examples=30)
def test_longer_work_never_shortens_the_step(seed: int) -> None:
    s = split_sample(seed)
    slower_s = again(s, seed).step_time_s
    assert slower_s >= s.simulation.step_time_s * (1 - 1e-12)


@given(SEEDS)
@settings(max_examples=30)
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
@settings(max_examples=20)
def test_equal_plans_give_equal_results(seed: int) -> None:
    s = split_sample(seed)
    fresh = simulator_of(s.space).run(s.plan)
    assert fresh is not None
    assert fresh.step_time_s == s.simulation.step_time_s
    assert fresh.memory == s.simulation.memory


@given(SEEDS)
@settings(max_examples=30)
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


@pytest.mark.parametrize("name", ["shardwright", "torchtitan"])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_memory_is_balanced_as_published(stages: int, name: str) -> None:
    worst = activation_bytes("1f1b", stages, name)[0]
    for kind in SPLIT_KINDS:
        held = activation_bytes(kind, stages, name)
        assert held == pytest.approx([published_share(kind, stages) * worst] * stages, rel=0.01)


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


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_an_order_written_out_takes_the_time_of_its_kind(kind: ScheduleKind) -> None:
    """But for pairs, which only DualPipe itself starts together."""
    plan = pipeline(kind, 4, 8)
    program = plan.program
    lines = tuple(format_actions(program.passes(stage)) for stage in range(4))
    schedule = replace(program.schedule, actions=lines)
    written = replace(plan, programs=(replace(program, schedule=schedule),))
    assert written.check() == []
    times = PassSeconds(forward=1.0, input=1.0, weight=1.0)
    own_s, written_s = fixed_step_s(plan, times), fixed_step_s(written, times)
    if kind != "dualpipe":
        assert written_s == own_s
    machine, software = Machine(plan.cluster), stack("shardwright", on_cores=True)
    own, other = (Simulator.for_plan(p, machine, software).run(p) for p in (plan, written))
    assert own is not None
    assert other is not None
    assert other.step_time_s == pytest.approx(own.step_time_s, rel=1e-12)
    for row, same in zip(own.memory, other.memory, strict=True):
        assert same.by["activations"] == row.by["activations"]
