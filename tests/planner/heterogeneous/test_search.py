"""The search over several device groups: bounds, limits, and what it is never worse than."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from generators.catalogue_problems import problem
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.brute_force import simulator_of
from oracles.heterogeneous_bounds import mixed_search, random_mixed_problem
from oracles.heterogeneous_oracle import all_plans, capped_space, random_mixed_space
from published.planning import RULE, request_of

from shardwright.planner.candidates.evaluator import Evaluator
from shardwright.planner.heterogeneous.build import heterogeneous_search
from shardwright.planner.heterogeneous.device_layouts import full_layouts, layout_count, layouts
from shardwright.planner.heterogeneous.fill_drain_bounds import fill_drain_bound_s, stage_weights
from shardwright.planner.heterogeneous.search_space import is_uniform
from shardwright.planner.heterogeneous.uneven_partition import uneven_partition, weighted_boundaries
from shardwright.planner.heterogeneous.work_limits import HeterogeneousLimits
from shardwright.planner.solve.engine import make_evaluator
from shardwright.planner.space.pipeline_shape import DeviceSlice, PipelineShape
from shardwright.spec.plan.plan import Plan

QUICK = HeterogeneousLimits(estimates=40, heuristic_shapes=6, tries=300, simulated=60)


def _shape(plan: Plan) -> PipelineShape:
    """The shape of a plan over several groups."""
    program, samples = plan.program, plan.program.micro_batch_samples
    places = tuple(
        tuple(
            DeviceSlice(
                p.device_group, p.first_rank, p.count, round((p.batch_share or 1.0) * samples)
            )
            for p in stage.devices
        )
        for stage in program.stages
    )
    schedule = program.schedule
    chunks = program.chunks_per_stage
    return PipelineShape(len(places), 0, schedule.kind, chunks, schedule.microbatches, places)


@pytest.mark.parametrize("seed", range(100, 110))
def test_no_quick_bound_is_above_a_plan(seed: int) -> None:
    space, plans = random_mixed_space(seed, 60, 600)
    simulator = simulator_of(space)
    search = heterogeneous_search(Evaluator(request_of(space), simulator, RULE))
    global_bound_s = search.bounds.interrupted(None)
    for plan in random.Random(seed).sample(plans, min(60, len(plans))):
        simulation = simulator.run(plan)
        assert simulation is not None
        bound_s = search.bounds.quick(_shape(plan))
        assert bound_s <= simulation.step_time_s * (1 + 1e-12)
        assert global_bound_s <= simulation.step_time_s


def test_the_oracle_and_the_search_list_the_same_shapes() -> None:
    space, plans = random_mixed_space(3, 60, 600)
    search = heterogeneous_search(Evaluator(request_of(space), simulator_of(space), RULE))
    listed = set(search.space.shapes())
    assert search.bounds.unlisted() == math.inf
    assert {_shape(plan) for plan in plans} <= listed
    assert plans == list(all_plans(space))


times = st.lists(st.floats(0.1, 10), min_size=1, max_size=6)


@given(times, st.integers(1, 20), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=200)
def test_the_bound_is_below_every_assignment(
    seconds: list[float], batches: int, fills: bool, seed: int
) -> None:
    source = random.Random(seed)
    kinds = [
        (source.randint(1, 5), [s * source.uniform(0.5, 2) for s in seconds]) for _ in range(3)
    ]
    work = [0.0] * len(seconds)
    for count, each in kinds:
        for _ in range(count):
            stage = source.randrange(len(seconds))
            work[stage] += each[stage]
    step = max(batches * w + (sum(work[:s]) if fills else 0.0) for s, w in enumerate(work))
    assert fill_drain_bound_s(kinds, batches, fills) <= step * (1 + 1e-12)


@given(st.integers(1, 6), st.integers(1, 30))
def test_equal_stages_have_the_closed_form(stages: int, batches: int) -> None:
    found = fill_drain_bound_s([(1, [1.0] * stages)], batches, True)
    assert found == pytest.approx(1 / (1 - (1 - 1 / batches) ** stages), rel=1e-8)
    assert sum(stage_weights([1.0] * stages, batches, False)) == pytest.approx(batches)


def test_layouts_are_counted_and_those_that_fill_are_among_them() -> None:
    groups = [("a", 3), ("b", 2)]
    every = layouts(groups, 9)
    assert len(every) == len(set(every)) <= layout_count(groups)
    assert set(full_layouts(groups, 9)) <= set(every)
    assert every[0].used == 5


def test_cuts_follow_the_speed_of_the_stages() -> None:
    rates = [1.0, 3.0]
    boundaries = uneven_partition(12, rates, lambda s, i, j: (j - i) / rates[s])
    assert boundaries == [0, 3, 12]
    assert uneven_partition(2, [1.0] * 3, lambda s, i, j: 1.0) is None
    assert weighted_boundaries(8, [1.0, 1.0, 2.0]) == [0, 2, 4, 8]


@pytest.mark.parametrize("cluster", ["1x2xA100-80GB+1x4xH100-80GB", "1x4xV100-32GB+1x2xA100-40GB"])
def test_never_worse_than_equal_stages(cluster: str) -> None:
    asked = problem("gpt2", cluster, 16, 512)
    equal = heterogeneous_search(make_evaluator(asked), QUICK, uniform_only=True).run()
    free = heterogeneous_search(make_evaluator(asked), QUICK).run()
    assert all(is_uniform(shape) for shape in equal.shapes)
    assert free.outcomes[0].step_time_s <= equal.outcomes[0].step_time_s
    assert free.lower_bound_s <= free.outcomes[0].step_time_s
    again = heterogeneous_search(make_evaluator(asked), QUICK).run()
    assert again.outcomes[0].plan.hash == free.outcomes[0].plan.hash


def test_a_mark_that_is_not_beaten_leaves_no_outcome() -> None:
    asked = problem("gpt2", "1x2xA100-80GB+1x2xH100-80GB", 8, 512)
    free = heterogeneous_search(make_evaluator(asked), QUICK).run()
    mark_s = free.outcomes[0].step_time_s * 0.5
    found = heterogeneous_search(make_evaluator(asked), QUICK, best_s=mark_s).run()
    assert not found.outcomes
    assert found.lower_bound_s <= mark_s


def test_a_deadline_ends_the_search_with_a_sound_bound() -> None:
    asked = problem("gpt2", "1x4xA100-80GB+1x4xH100-80GB", 32, 512)
    limits = replace(QUICK, deadline_s=0.0)
    found = heterogeneous_search(make_evaluator(asked), limits).run()
    free = heterogeneous_search(make_evaluator(asked), QUICK).run()
    assert found.stopped_by == "deadline"
    assert found.lower_bound_s <= free.outcomes[0].step_time_s


def test_ctrl_c_ends_the_search_with_what_was_found() -> None:
    asked = problem("gpt2", "1x2xA100-80GB+1x2xH100-80GB", 8, 512)
    seen = itertools.count()

    def progress(looked: int, shapes: int, best_s: float) -> None:
        if next(seen) == 4:
            raise KeyboardInterrupt

    search = heterogeneous_search(make_evaluator(asked), QUICK, progress)
    found = search.run()
    assert search.interrupted
    assert found.outcomes
    assert found.stopped_by == "deadline"


def test_a_heavy_head_is_counted_once() -> None:
    """Small blocks and a head that no stage could hold as often as its share of the layers."""
    space = capped_space(random_mixed_problem(6), {"fast": 1_836_993_899, "slow": 1_682_646_734})
    found = mixed_search(space).run()
    assert found.outcomes
    assert not found.outcomes[0].plan.check()
