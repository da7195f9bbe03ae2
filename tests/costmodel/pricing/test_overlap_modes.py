"""What ``--overlap`` hides: wider modes are never slower, and each kind alone helps or not."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import pytest
from generators.catalogue_problems import problem
from generators.samples import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.brute_force import simulator_of

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.costmodel.pricing.overlap import exposed_over_kernels
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.spec.choices import OVERLAPS
from shardwright.spec.cluster.stack_spec import OverlapKinds, StackSpec
from shardwright.spec.plan.plan import Plan

SLACK = 1 + 1e-9
SECONDS = st.floats(0, 10)


def step_s(plan: Plan, simulator: Simulator, stack: StackSpec) -> float:
    """Simulated step of a plan with another stack on the same machine."""
    simulation = Simulator.for_plan(plan, simulator.pricer.machine, stack).run(plan)
    assert simulation is not None
    return simulation.step_time_s


@given(st.integers(0, 400))
@settings(max_examples=60)
def test_no_wider_mode_is_slower(seed: int) -> None:
    s = sample(seed)
    simulator = simulator_of(s.space)
    times = [step_s(s.plan, simulator, s.space.stack.with_overlap(mode)) for mode in OVERLAPS]
    for narrower, wider in pairwise(times):
        assert wider <= narrower * SLACK


@given(st.integers(0, 400), st.booleans())
@settings(max_examples=40)
def test_hiding_only_gathers_or_only_reductions_lies_between(seed: int, gathers: bool) -> None:
    s = sample(seed)
    simulator, own = simulator_of(s.space), s.space.stack
    kinds = {f.name: getattr(own.overlaps, f.name) for f in fields(OverlapKinds)}
    one = OverlapKinds(**{**kinds, "dp_parameter": gathers, "dp_gradient": not gathers})
    both = OverlapKinds(**{**kinds, "dp_parameter": True, "dp_gradient": True})
    none = OverlapKinds(**{**kinds, "dp_parameter": False, "dp_gradient": False})
    least, middle, most = (
        step_s(s.plan, simulator, replace(own, overlaps=o)) for o in (both, one, none)
    )
    assert least <= middle * SLACK
    assert middle <= most * SLACK


@given(SECONDS, SECONDS, st.floats(1, 2), st.floats(0, 5))
def test_what_shows_of_a_hidden_collective_grows_with_it_and_never_exceeds_it(
    collective_s: float, work_s: float, factor: float, more_s: float
) -> None:
    shown = exposed_over_kernels(collective_s, work_s, factor)
    assert -1e-9 <= shown <= collective_s * SLACK + 1e-9
    assert exposed_over_kernels(collective_s + more_s, work_s, factor) >= shown - 1e-9


@pytest.mark.parametrize("stack", ["megatron"])
def test_gathers_after_a_sharded_update_hide_beside_the_next_forward(stack: str) -> None:
    found = problem("llama-2-7b", "1x8xA100-80GB", 64, 4096, stack=stack, attention="flash")
    plan, _ = uniform_plan(found, UniformStrategy(shard="zero1", micro_batch=1, recompute="full"))
    shown = []
    for mode in ("none", "dp"):
        simulator = Simulator.for_plan(plan, found.machine, found.stack.with_overlap(mode))
        simulation = simulator.run(plan)
        assert simulation is not None
        shown.append(simulation.critical.gathers_s)
    assert 0 < shown[1] < 0.2 * shown[0]
