"""Bounds are what makes a search a proof: none may ever be above a plan that it speaks for."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from generators.catalogue_problems import problem, space_of
from generators.catalogue_problems import space as real_space
from generators.open_problems import open_problem
from generators.random_plans import Draft
from generators.random_spaces import PLENTY_BYTES
from generators.samples import random_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.bound_checks import Tightness, check_bounds, note_bounds
from oracles.brute_force import Pipeline, Restriction, simulator_of
from published.planning import parts_of

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.planner.bounds.knapsack_bounds import fractional_knapsack, hull_of
from shardwright.planner.bounds.shape_bounds import ShapeBounds
from shardwright.planner.space.pipeline_shape import PipelineShape
from shardwright.spec.strategy import LayerStrategy, Sharding

PLANS = 25


@pytest.mark.parametrize("seed", range(20))
def test_no_bound_is_above_a_random_plan(seed: int) -> None:
    space = random_problem(seed)
    found = check_bounds(space, PLANS, seed)
    assert found.faults == []
    assert found.plans == PLANS


@pytest.mark.parametrize("seed", [4, 16, 19])
def test_no_bound_is_above_a_random_plan_of_every_axis(seed: int) -> None:
    """16: stages of one layer, of which those behind reach further: they hold less in flight."""
    assert check_bounds(open_problem(seed), 50, seed).faults == []


def test_a_table_in_the_chunk_of_its_head_moves_once() -> None:
    """T5: the cut leaves the decoder's table with the head, and the states are sharded."""
    space = open_problem(123)
    assert [x.kind for x in space.model.layers()].count("embedding") == 2
    shard = Sharding(parameters=4, gradients=4, optimizer=4)
    sharded = LayerStrategy(tp=2, sequence_parallel="megatron", cp=2, shard=shard)
    block = LayerStrategy(tp=4, sequence_parallel="megatron")
    draft = Draft(
        pipeline=Pipeline(stages=2, width=8, kind="1f1b", chunks=1, microbatches=2),
        boundaries=(0, 2, 7),
        strategies=(*[sharded] * 4, block, block, sharded),
    )
    bounds = parts_of(space.with_memory(PLENTY_BYTES)).bounds
    simulator = simulator_of(space)
    plan = draft.plan(space)
    assert not plan.check()
    simulation = simulator.run(plan)
    assert simulation is not None
    found = Tightness()
    note_bounds(found, bounds, simulator, draft, simulation)
    assert found.faults == []
    assert found.largest["plan"] > 0.8


@pytest.mark.parametrize(
    ("model", "cluster", "batch", "seq_len"),
    [("gpt2-xl", "8xA100-80GB", 64, 1024), ("llama-2-7b", "2x8xH100-80GB", 32, 2048)],
)
def test_no_bound_is_above_a_random_plan_of_a_real_model(
    model: str, cluster: str, batch: int, seq_len: int
) -> None:
    found = check_bounds(real_space(model, cluster, batch, seq_len), 25, 0)
    assert found.faults == []


def test_what_pairs_of_passes_hide_is_in_no_bound() -> None:
    """Slow links, all blocks split: half of DualPipe's communication runs beside other work."""
    asked = problem("llama-2-7b", "1x8xH100-PCIE-80GB", 64, 2048)
    flags = UniformStrategy(tp=4, pp=2, sp="megatron", schedule="dualpipe")
    plan, _ = uniform_plan(asked, flags)
    split = tuple(
        Restriction(axis=axis, allowed=(value,)) for axis, value in (("tp", 4), ("sp", "megatron"))
    )
    parts = parts_of(replace(space_of(asked), restrictions=split))
    simulation = parts.engine.evaluator.simulator.run(plan)
    assert simulation is not None
    shape = PipelineShape(2, 4, "dualpipe", 2, 64)
    bounds = (parts.bounds.quick_s(shape), parts.bounds.exact_s(shape))
    assert 0.45 * simulation.step_time_s < min(bounds)
    assert max(bounds) <= simulation.step_time_s
    in_turn = shape._replace(kind="zbv")
    assert parts.bounds.quick_s(in_turn) > simulation.step_time_s


def test_a_bound_that_is_too_high_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ShapeBounds.exact_s
    monkeypatch.setattr(ShapeBounds, "exact_s", lambda self, shape: 1.5 * plain(self, shape))
    assert any(check_bounds(random_problem(seed), 10, seed).faults for seed in range(4))


Groups = list[tuple[int, list[tuple[float, float]]]]


@st.composite
def groups(draw: st.DrawFn) -> Groups:
    """(count, [(bytes, seconds)]) of some kinds of layers."""
    pair = st.tuples(st.integers(1, 50), st.integers(1, 50))
    kinds = st.tuples(st.integers(1, 3), st.lists(pair, min_size=1, max_size=4))
    return draw(st.lists(kinds, min_size=1, max_size=3))


@given(groups(), st.integers(1, 400))
@settings(max_examples=300)
def test_the_relaxed_knapsack_is_below_every_choice(found: Groups, budget: int) -> None:
    hulls = [
        (n, hull_of(np.array([b for b, _ in o], float), np.array([s for _, s in o], float)))
        for n, o in found
    ]
    bound = fractional_knapsack(hulls, float(budget))
    layers = [options for n, options in found for _ in range(n)]
    fitting = [
        sum(s for _, s in choice)
        for choice in itertools.product(*layers)
        if sum(b for b, _ in choice) <= budget
    ]
    assert bound <= min(fitting, default=math.inf) * (1 + 1e-9)
    if math.isinf(bound):
        assert not fitting


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=12))
@settings(max_examples=200)
def test_the_hull_is_below_every_point_and_touches_its_ends(points: list[tuple[int, int]]) -> None:
    bytes_, seconds = (np.array(column, float) for column in zip(*points, strict=True))
    xs, ys = hull_of(bytes_, seconds)
    assert xs == sorted(set(xs))
    assert ys == sorted(set(ys), reverse=True)
    assert xs[0] == min(b for b, _ in points)
    assert ys[-1] == min(s for _, s in points)
    for b, s in points:
        if b <= xs[-1]:
            assert s >= np.interp(b, xs, ys) - 1e-9


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=200)
def test_fill_work_and_drain_bound_every_partition(stages: int, batches: int, seed: int) -> None:
    """The closed form of the best uneven split is below what any split takes."""
    source = random.Random(seed)
    work = [source.uniform(0.1, 1) for _ in range(stages)]
    least = max(batches * w + sum(work[:s]) for s, w in enumerate(work))
    assert sum(work) / (1 - (1 - 1 / batches) ** stages) <= least * (1 + 1e-12)
