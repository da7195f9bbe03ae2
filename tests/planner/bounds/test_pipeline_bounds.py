"""Chains of passes: no bound made of them is above a plan that it speaks for, and many are near."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from generators.catalogue_problems import space as real_space
from generators.random_plans import Draft, Drawer, capped
from generators.random_spaces import PLENTY_BYTES
from generators.samples import random_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.brute_force import Space, simulator_of
from published.planning import RULE, parts_of, search_of
from toys.lane_spaces import LANE_CLUSTERS, lane_space

from shardwright.costmodel.simulation.simulator import Simulation
from shardwright.planner.bounds.shape_bounds import ShapeBounds
from shardwright.planner.chains.lagrangian import best_multiplier, lagrangian_at
from shardwright.planner.heuristics.uniform_plan import UniformPlan
from shardwright.planner.relaxation.free_cut_bounds import free_boundary_bound
from shardwright.planner.relaxation.pipeline_bounds import BoundedPipeline, PipelineBounds
from shardwright.planner.space.pipeline_shape import PipelineShape
from shardwright.planner.tables import pass_table
from shardwright.planner.tables.pass_table import PASS_COLUMNS, PassTable, non_dominated
from shardwright.spec.schedules.stage_order import ALL_KINDS
from shardwright.spec.strategy import LayerStrategy

PLANS = 10
ROUNDING = 1e-9
LONG_S = 1e6
TRAFFIC = ("hidden_s", "fetched_s", "first_exposed_s", "last_exposed_s", "inner_s")
BYTES = (
    "resident_bytes",
    "accumulated_bytes",
    "kept_bytes",
    "backward_peak_bytes",
    "waiting_bytes",
    "output_bytes",
)


@pytest.fixture
def whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables with every option, so that random plans find theirs."""
    monkeypatch.setattr(pass_table, "MAX_UNFILTERED", 10**9)


def only(table: PassTable, strategy: LayerStrategy) -> PassTable:
    """The table of one option."""
    return table.only(np.array([each == strategy for each in table.strategies]))


def drafted(space: Space, seed: int) -> list[tuple[ShapeBounds, Draft, Simulation]]:
    """Random plans on devices that hold just what each needs."""
    drawer = Drawer(space, random.Random(f"paths {seed}"), ALL_KINDS)
    bounds = parts_of(space.with_memory(PLENTY_BYTES)).bounds
    simulator, found = simulator_of(space), []
    for _ in range(PLANS):
        draft = drawer.draft()
        simulation = simulator.run(draft.plan(space))
        assert simulation is not None
        found.append((bounds, draft, simulation))
    return found


@pytest.mark.usefixtures("whole_tables")
@pytest.mark.parametrize("seed", range(12))
def test_no_chain_is_longer_than_a_plan(seed: int) -> None:
    ratios = [*chain_ratios(random_problem(seed), seed)]
    assert max(whole for whole, _ in ratios) > 0.9
    assert max(alone for _, alone in ratios) > 0.8


@pytest.mark.usefixtures("whole_tables")
@pytest.mark.parametrize("seed", range(3))
def test_no_chain_is_longer_than_a_plan_with_lanes(seed: int) -> None:
    for cluster in LANE_CLUSTERS:
        assert max(whole for whole, _ in chain_ratios(lane_space(cluster), seed)) > 0.7


def chain_ratios(space: Space, seed: int) -> Iterator[tuple[float, float]]:
    """Bounds of random plans by their steps: of all chains, and of a stage alone."""
    for shapes, draft, simulation in drafted(space, seed):
        reserved = max(row.reserved_bytes for row in simulation.memory if row.tier == "hbm")
        cluster = capped(space, reserved, RULE.margin).cluster
        shapes.contexts.request = replace(shapes.contexts.request, cluster=cluster)
        p = draft.pipeline
        shape = PipelineShape(p.stages, p.width, p.kind, p.chunks, p.microbatches)
        step_s = simulation.step_time_s - shapes.quick.end_s(shape)
        budget = shapes.contexts.budget(shape)
        every = shapes.relaxations.pipeline(shape)
        tables = {
            layer: only(every.tables[kind], draft.strategies[layer])
            for layer, kind in enumerate(every.layer_classes)
        }
        alone = PipelineBounds(tables, range(len(tables)), every.slowdown, every.message_s)
        for bounds in (every, alone):
            cut = BoundedPipeline(bounds, shape, draft.boundaries, budget)
            bound_s = cut.bound()
            assert bound_s <= step_s * (1 + ROUNDING), draft
            for stages in (shape.stages, 2 * shape.stages):
                for boundaries in ((), draft.boundaries):
                    aggregated_s = bounds.aggregated.bound_s(shape, boundaries, stages, budget)
                    assert aggregated_s <= step_s * (1 + ROUNDING), draft
            alone_s = max(cut._stage_s(stage) for stage in range(shape.stages))
            assert alone_s <= step_s * (1 + ROUNDING), draft
            if shape.chunks == 1:
                free_s = free_boundary_bound(bounds, shape, budget, step_s / 100, LONG_S)
                assert free_s <= step_s * (1 + ROUNDING), draft
                for enough_s in (1.01 * step_s, LONG_S):
                    relaxed = bounds.relaxed(shape, budget, enough_s)
                    assert relaxed.seconds <= step_s * (1 + ROUNDING), draft
        yield bound_s / step_s, alone_s / step_s


@pytest.mark.parametrize(
    ("kind", "stages", "chunks"),
    [("1f1b", 4, 1), ("interleaved", 4, 2), ("zbv", 4, 2), ("dualpipe", 2, 2)],
)
def test_the_best_uniform_plan_takes_about_what_its_chains_say(
    kind: str, stages: int, chunks: int
) -> None:
    """Llama-2-7b on eight nodes: the estimate is within 5 % of the simulated plan."""
    space = real_space("llama-2-7b", "8x8xH100-80GB", 512, 4096)
    parts = parts_of(space)
    relaxations = parts.bounds.relaxations
    shape = PipelineShape(stages, 64 // stages, kind, chunks, 64)  # type: ignore[arg-type]
    assert parts.bounds.tables.space.is_large
    UniformPlan(relaxations).search(shape, parts.incumbents.try_layers)
    (outcome,) = parts.incumbents.outcomes.values()
    estimate_s, bound_s = relaxations.estimate(shape), relaxations.bound(shape)
    assert bound_s <= outcome.step_time_s
    assert estimate_s == pytest.approx(outcome.step_time_s, rel=0.05)
    assert bound_s > 0.85 * outcome.step_time_s


@pytest.mark.parametrize(("kind", "stages"), [("zbv", 4), ("dualpipe", 2), ("interleaved", 4)])
def test_relaxed_layers_made_whole_are_plans_near_the_bound(kind: str, stages: int) -> None:
    space = real_space("llama-2-7b", "8x8xH100-80GB", 512, 4096)
    parts = parts_of(space)
    shape = PipelineShape(stages, 64 // stages, kind, 2, 64)  # type: ignore[arg-type]
    bound_s = parts.bounds.exact_s(shape)
    parts.rounding.search(shape, parts.incumbents.try_likely)
    assert parts.incumbents.outcomes
    for decision, outcome in parts.incumbents.outcomes.items():
        assert decision.shape == shape
        assert bound_s <= outcome.step_time_s < 1.15 * bound_s


def test_large_spaces_have_a_small_gap() -> None:
    """A 70 B model on 64 devices: the bound without chains is 16 % below the best plan."""
    found = search_of(real_space("llama-3-70b", "8x8xH100-80GB", 512, 8192)).run()
    assert found.outcomes[0].step_time_s < 1.02 * found.lower_bound_s


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 3), st.floats(0.05, 1.2))
def test_prices_of_bytes_bound_the_knapsack(seed: int, layer_classes: int, share: float) -> None:
    """Against every combination of options of two layers a kind."""
    source = np.random.default_rng(seed)
    rows = [(2, source.random(4), source.random(4)) for _ in range(layer_classes)]
    budget = share * sum(2 * float(bytes_.mean()) for _, _, bytes_ in rows)
    layers = [(seconds, bytes_) for count, seconds, bytes_ in rows for _ in range(count)]
    grids = np.meshgrid(*[np.arange(4)] * len(layers), indexing="ij")
    seconds = sum(s[g] for (s, _), g in zip(layers, grids, strict=True))
    used = sum(b[g] for (_, b), g in zip(layers, grids, strict=True))
    fits = used <= budget
    best = float(seconds[fits].min()) if fits.any() else float("inf")
    found, _ = lagrangian_at(rows, best_multiplier(rows, budget), budget)
    assert found <= best * (1 + ROUNDING)
    assert found >= sum(2 * float(s.min()) for _, s, _ in rows)


def test_options_that_go_are_beaten_in_every_figure() -> None:
    bounds = parts_of(real_space("llama-2-7b", "8x8xH100-80GB", 512, 4096)).bounds
    shape = PipelineShape(2, 32, "1f1b", 1, 64)
    place = bounds.relaxations.pipeline(shape)
    kept = place.tables[place.main_class]
    every = bounds.tables.space.options(place.main_class, 32, 8)
    assert 0 < len(kept.strategies) <= len(every)
    assert non_dominated(kept).strategies == kept.strategies


@pytest.mark.parametrize("seed", range(6))
def test_of_options_alike_in_every_figure_one_is_kept(seed: int) -> None:
    """Copies far apart in a table: which of them a product finds to be the best is rounding."""
    place = _some_place(seed)
    for table in place.tables.values():
        copies = np.tile(np.arange(len(table.strategies)), 9 + seed)
        many = table.only(np.ones(len(table.strategies), dtype=bool))
        many = replace(
            many,
            strategies=tuple(many.strategies[row] for row in copies),
            columns=many.columns[copies],
            **{name: getattr(many, name)[copies] for name in (*TRAFFIC, *BYTES)},
        )
        left = non_dominated(many)
        assert left.strategies
        for name in BYTES:
            assert getattr(left, name).min() == getattr(table, name).min()
        for name in PASS_COLUMNS.names or ():
            least_s = left.columns[name].sum(axis=1).min()
            assert least_s == pytest.approx(table.columns[name].sum(axis=1).min())


def _some_place(seed: int) -> PipelineBounds:
    bounds = parts_of(random_problem(seed).with_memory(PLENTY_BYTES)).bounds
    return bounds.relaxations.pipeline(next(iter(bounds.tables.space.shapes())))
