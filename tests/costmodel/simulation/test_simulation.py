"""The simulated step: against theory, against a second simulation, and when prices change."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from checks.simulation_checks import check_starts
from generators.plan_cases import Case, Sizes
from generators.random_plans import reshaped
from generators.samples import Sample, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.brute_force import simulator_of
from published.wrong_pricers import Free, Perturbed

from shardwright.costmodel.lowering.chunk import StageChunk
from shardwright.costmodel.lowering.stage_passes import PassKind
from shardwright.costmodel.pricing.costs import PassCost
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.simulation.pass_time import PASS_TERMS, PassTime
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.costmodel.symbolic.lowered_pass import LoweredPass
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.plan.plan import Plan
from shardwright.spec.schedules.stage_order import ScheduleKind

SEEDS = st.integers(0, 95)
DRAWS = st.integers(0, 2**32)
"""Seeds of random sources: hypothesis' own randoms take longer than what is tested with them."""
FORWARD_S, BACKWARD_S = 2.0, 3.0


class _Fixed(Simulator):
    """Every pass of a chunk takes the same time; the update and the host take none."""

    def pass_time(self, chunk: StageChunk, kind: PassKind, group: str, link_span: int) -> PassTime:
        seconds = FORWARD_S if kind.forward else BACKWARD_S
        return PassTime(seconds, [seconds, *[0.0] * (len(PASS_TERMS) - 1)], 0.0, 0.0)


def fixed_step_s(plan: Plan) -> float:
    """Seconds of the step when only passes take time."""
    chosen = replace(stack("shardwright"), step_s=0.0, launch_s=0.0)
    pricer = Free(Machine(plan.cluster), chosen)
    lowering = Simulator.for_plan(plan, pricer.machine, chosen).lowering
    simulation = _Fixed(lowering, pricer).run(plan)
    assert simulation is not None
    return simulation.step_time_s


def pipeline(kind: ScheduleKind, stages: int, chunks: int, batches: int) -> Plan:
    sizes = Sizes(blocks=max(1, stages * chunks - 2))
    return Case(
        name="closed form",
        sizes=sizes,
        ranks=stages,
        stages=stages,
        chunks=chunks,
        kind=kind,
        global_batch=batches,
        micro_batch=1,
    ).plan()


@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "batches"), [(1, 1), (1, 5), (2, 1), (3, 7), (4, 16), (8, 5)])
def test_equal_stages_take_m_plus_p_minus_1_passes(
    kind: ScheduleKind, stages: int, batches: int
) -> None:
    closed_s = (batches + stages - 1) * (FORWARD_S + BACKWARD_S)
    assert fixed_step_s(pipeline(kind, stages, 1, batches)) == pytest.approx(closed_s, rel=1e-12)


@pytest.mark.parametrize(
    ("stages", "chunks", "batches"),
    [(2, 2, 2), (2, 2, 8), (2, 5, 4), (4, 2, 4), (4, 3, 12), (6, 2, 18)],
)
def test_interleaved_stages_take_m_plus_p_minus_1_over_v(
    stages: int, chunks: int, batches: int
) -> None:
    """Chunk passes take t each, so v of them are a stage's micro-batch."""
    closed_s = (batches * chunks + stages - 1) * (FORWARD_S + BACKWARD_S)
    found_s = fixed_step_s(pipeline("interleaved", stages, chunks, batches))
    assert found_s == pytest.approx(closed_s, rel=1e-12)


@given(SEEDS)
@settings(max_examples=80)
def test_a_second_simulation_agrees(seed: int) -> None:
    check_starts(sample(seed))


class _LongerPass(Pricer):
    """One layer's pass takes longer than it does."""

    def __init__(self, pricer: Pricer, victim: LoweredPass, extra_s: float) -> None:
        super().__init__(pricer.machine, pricer.stack)
        self._victim, self._extra_s = victim, extra_s

    def with_link_span(self, link_span: int) -> Pricer:
        return _LongerPass(super().with_link_span(link_span), self._victim, self._extra_s)

    def layer_pass(self, lowered: LoweredPass) -> PassCost:
        cost = super().layer_pass(lowered)
        if lowered is not self._victim:
            return cost
        terms = (cost.terms_s[0] + self._extra_s, *cost.terms_s[1:])
        return cost._replace(time_s=cost.time_s + self._extra_s, terms_s=terms)


def again(s: Sample, pricer: Pricer) -> Simulation:
    simulation = Simulator(s.simulator.lowering, pricer).run(s.plan)
    assert simulation is not None
    return simulation


@given(SEEDS, DRAWS)
@settings(max_examples=80)
def test_longer_work_never_shortens_the_step(seed: int, draw: int) -> None:
    s, source = sample(seed), random.Random(draw)
    items = sorted(
        {
            entry.work
            for chunks in s.simulation.chunks
            for chunk in chunks
            for layer in chunk.layers
            for p in (layer.lowered.forward, layer.lowered.backward)
            for entry in p.entries
        }
        | {
            item
            for chunks in s.simulation.chunks
            for chunk in chunks
            for layer in chunk.layers
            if layer.unit is not None
            for item in (
                *layer.unit.gather.forward,
                *layer.unit.reduce.fresh,
                *layer.unit.reduce.upcast,
            )
        },
        key=repr,
    )
    victim = source.choice(items)
    factor = 1 + 10 ** source.uniform(-3, 2)
    for hits in (lambda item: item == victim, lambda item: type(item) is type(victim)):
        slower = again(s, Perturbed(s.simulator.pricer, factor, hits))
        assert slower.step_time_s >= s.simulation.step_time_s * (1 - 1e-12)


@given(SEEDS)
@settings(max_examples=30)
def test_everything_slower_is_a_slower_step(seed: int) -> None:
    """The perturbations of the other tests do reach the step."""
    s = sample(seed)
    slower = again(s, Perturbed(s.simulator.pricer, 10.0, lambda item: True))
    assert slower.step_time_s > s.simulation.step_time_s * 1.01


@given(SEEDS, DRAWS)
@settings(max_examples=60)
def test_a_longer_pass_never_shortens_the_step(seed: int, draw: int) -> None:
    s, source = sample(seed), random.Random(draw)
    layer = source.choice(
        [e for chunks in s.simulation.chunks for chunk in chunks for e in chunk.layers]
    )
    victim = source.choice([layer.lowered.forward, layer.lowered.backward])
    extra_s = s.simulation.step_time_s * 10 ** source.uniform(-4, 0)
    slower = again(s, _LongerPass(s.simulator.pricer, victim, extra_s))
    assert slower.step_time_s >= s.simulation.step_time_s * (1 - 1e-12)


@given(SEEDS)
@settings(max_examples=60)
def test_giving_up_only_skips_slow_plans(seed: int) -> None:
    s = sample(seed)
    step_s = s.simulation.step_time_s
    kept = s.simulator.run(s.plan, step_s * (1 + 1e-9))
    assert kept is not None
    assert kept.step_time_s == step_s
    assert s.simulator.run(s.plan, step_s * 1e-3) is None


@given(SEEDS)
@settings(max_examples=40)
def test_equal_plans_take_equal_time_whatever_was_simulated_before(seed: int) -> None:
    s, other = sample(seed), sample(seed + 64)
    fresh = simulator_of(s.space)
    fresh.run(other.plan if other.space == s.space else s.plan)
    found = fresh.run(s.plan)
    assert found is not None
    assert found.step_time_s == s.simulation.step_time_s
    assert found.memory == s.simulation.memory


@given(SEEDS)
@settings(max_examples=60)
def test_gpipe_of_one_stage_is_1f1b_with_more_memory(seed: int) -> None:
    """Why the planner may leave it out."""
    s = sample(seed)
    if s.draft.pipeline.stages > 1:
        return
    gpipe = s.simulator.run(reshaped(s.draft, kind="gpipe").plan(s.space))
    plain = s.simulator.run(reshaped(s.draft, kind="1f1b").plan(s.space))
    assert gpipe is not None
    assert plain is not None
    assert gpipe.step_time_s == pytest.approx(plain.step_time_s, rel=1e-12)
    assert gpipe.memory[0].reserved_bytes >= plain.memory[0].reserved_bytes
