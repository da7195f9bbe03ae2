"""Runs of layers that stages may hold within a time: every plan that is done by then is a path."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import pytest
from generators.random_plans import Draft, Drawer, capped
from generators.random_spaces import PLENTY_BYTES
from generators.samples import random_problem
from oracles.brute_force import Pipeline, Space, simulator_of
from published.planning import RULE, parts_of

from shardwright.costmodel.lowering.stage_passes import kind_of
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.planner.bounds.shape_bounds import ShapeBounds
from shardwright.planner.chains.pass_chains import deferred_weight_passes
from shardwright.planner.relaxation.pipeline_bounds import PipelineBounds
from shardwright.planner.relaxation.stage_feasibility import Arc, StageFeasibility
from shardwright.planner.space.memory_budget import Budget
from shardwright.planner.space.pipeline_shape import PipelineShape
from shardwright.planner.tables import pass_table
from shardwright.planner.tables.pass_kinds import KINDS, kind_number
from shardwright.planner.tables.pass_table import PassTable
from shardwright.spec.schedules.stage_order import ScheduleKind, stage_order
from shardwright.spec.strategy import LayerStrategy

PLANS, MOST_CUTS = 5, 30
ROUNDING = 1e-9
KINDS_OF_ONE_CHUNK: tuple[ScheduleKind, ...] = ("gpipe", "1f1b", "zero_bubble")
UNBOUNDED = (1e18,)
PIPELINE = Pipeline(stages=4, width=2, kind="zero_bubble", chunks=1, microbatches=4)


@pytest.fixture(autouse=True)
def _whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables with every option, so that random plans find theirs."""
    monkeypatch.setattr(pass_table, "MAX_UNFILTERED", 10**9)


class Case(NamedTuple):
    """A draft, what it takes and the bounds that speak for it: of all options, of its own."""

    draft: Draft
    shape: PipelineShape
    passes_s: float
    budget: Budget
    bounds: tuple[PipelineBounds, PipelineBounds]


class Problem:
    """Random plans of one chunk a stage, on devices that hold just what each needs."""

    def __init__(
        self, seed: int, layer_classes: tuple[ScheduleKind, ...] = KINDS_OF_ONE_CHUNK
    ) -> None:
        self.space: Space = random_problem(seed)
        self.drawer = Drawer(self.space, random.Random(f"arcs {seed}"), layer_classes)
        self.bounds: ShapeBounds = parts_of(self.space.with_memory(PLENTY_BYTES)).bounds
        self.simulator: Simulator = simulator_of(self.space)

    def drafts(self, count: int) -> Iterator[Draft]:
        for _ in range(count):
            draft = self.drawer.draft()
            if draft.pipeline.stages > 1:
                yield draft

    def case(self, draft: Draft) -> Case:
        p, simulation = draft.pipeline, self.simulation(draft)
        shape = PipelineShape(p.stages, p.width, p.kind, p.chunks, p.microbatches)
        reserved = max(row.reserved_bytes for row in simulation.memory)
        cluster = capped(self.space, reserved, RULE.margin).cluster
        contexts = self.bounds.contexts
        contexts.request = replace(contexts.request, cluster=cluster)
        every = self.bounds.relaxations.pipeline(shape)
        own = {
            n: only(every.tables[k], draft.strategies[n]) for n, k in enumerate(every.layer_classes)
        }
        alone = PipelineBounds(own, range(len(own)), every.slowdown, every.message_s)
        passes_s = simulation.step_time_s - simulation.host_s
        return Case(draft, shape, passes_s, contexts.budget(shape), (every, alone))

    def simulation(self, draft: Draft) -> Simulation:
        found = self.simulator.run(draft.plan(self.space))
        assert found is not None
        return found


def only(table: PassTable, strategy: LayerStrategy) -> PassTable:
    """The table of one option."""
    return table.only(np.array([each == strategy for each in table.strategies]))


def arcs_of(
    bounds: PipelineBounds, shape: PipelineShape, budget: Budget, within_s: float
) -> list[list[Arc]]:
    hops_s = bounds.least_travel_s(shape)[0]
    return StageFeasibility(
        bounds.layer_positions, bounds.layer_classes, shape, budget, hops_s
    ).arcs(within_s)


def has_path(arcs: list[list[Arc]], boundaries: tuple[int, ...]) -> bool:
    """Whether a plan with these cuts lies on the arcs."""
    runs = list(pairwise(boundaries))
    assert len(arcs) == len(runs)
    return all(run in {(a.start, a.stop) for a in own} for own, run in zip(arcs, runs, strict=True))


@pytest.mark.parametrize("layer_classes", [KINDS_OF_ONE_CHUNK, ("zero_bubble",)])
@pytest.mark.parametrize("seed", [13, 22, 43, 45])
def test_plans_are_paths_within_their_own_time(
    seed: int, layer_classes: tuple[ScheduleKind, ...]
) -> None:
    problem, seen = Problem(seed, layer_classes), 0
    for draft in problem.drafts(PLANS):
        case = problem.case(draft)
        for bounds in case.bounds:
            for budget in (case.budget, UNBOUNDED):
                within_s = case.passes_s * (1 + ROUNDING)
                arcs = arcs_of(bounds, case.shape, budget, within_s)
                assert has_path(arcs, draft.boundaries), draft
        seen += 1
    assert seen


@pytest.mark.parametrize("boundaries", [(0, 1, 2, 3, 8), (0, 1, 2, 4, 8)])
def test_a_chain_ends_with_no_weight_gradients_but_the_first_stages(
    boundaries: tuple[int, ...],
) -> None:
    """Recomputing makes input parts long; the first stage has an embedding, and so no others."""
    problem, pipeline = Problem(289), PIPELINE
    strategies = [LayerStrategy(recompute="full")] * 8
    strategies[0] = strategies[-1] = LayerStrategy()
    draft = Draft(pipeline=pipeline, boundaries=boundaries, strategies=tuple(strategies))
    case = problem.case(draft)
    within_s = case.passes_s * (1 + ROUNDING)
    assert has_path(arcs_of(case.bounds[1], case.shape, UNBOUNDED, within_s), boundaries)


@pytest.mark.parametrize("seed", [13, 45, 51])
def test_no_time_without_a_path_is_as_long_as_the_best_cut_takes(seed: int) -> None:
    """Every cut of some plans' layers, simulated: the best of those that fit has its path.

    Arcs within less time are some of those within more, and some time has none at all.
    """
    problem, near = Problem(seed), []
    for draft in problem.drafts(2 * PLANS):
        case = problem.case(draft)
        alone, layers = case.bounds[1], len(draft.strategies)
        inner = list(combinations(range(1, layers), case.shape.stages - 1))
        if len(inner) > MOST_CUTS:
            continue
        most = max(row.reserved_bytes for row in problem.simulation(draft).memory)
        timed = []
        for boundaries in ((0, *each, layers) for each in inner):
            simulation = problem.simulation(replace(draft, boundaries=boundaries))
            if max(row.reserved_bytes for row in simulation.memory) <= most:
                timed.append((simulation.step_time_s - simulation.host_s, boundaries))
        best_s, best_cuts = min(timed)
        place = (alone, case.shape, case.budget)
        whole = arcs_of(*place, best_s * (1 + ROUNDING))
        assert has_path(whole, best_cuts), draft
        low_s, high_s = 0.0, best_s * (1 + ROUNDING)
        for _ in range(12):
            middle_s = (low_s + high_s) / 2
            arcs = arcs_of(*place, middle_s)
            assert bool(arcs[0]) == all(arcs)
            for own, more in zip(arcs, whole, strict=True):
                assert set(own) <= set(more)
            low_s, high_s = (low_s, middle_s) if arcs[0] else (middle_s, high_s)
        near.append(high_s / best_s)
    assert max(near) > 0.85


@pytest.mark.parametrize("seed", [19, 45])
def test_every_arc_lies_on_a_path(seed: int) -> None:
    problem, seen = Problem(seed), 0
    for draft in problem.drafts(PLANS):
        case = problem.case(draft)
        arcs = arcs_of(case.bounds[0], case.shape, case.budget, case.passes_s)
        seen += 1
        ends = {0}
        for stage, own in enumerate(arcs):
            assert {arc.start for arc in own} == ends, (stage, draft)
            ends = {arc.stop for arc in own}
            assert all(sum(count for _, count in arc.run) == arc.stop - arc.start for arc in own)
        assert ends == {len(draft.strategies)}
    assert seen


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 4, 9])
def test_late_weights_are_those_after_the_last_input_part(stages: int, microbatches: int) -> None:
    for stage in range(stages):
        order = stage_order("zero_bubble", stage, stages, 1, microbatches)
        last = max(n for n, item in enumerate(order) if item.part == "input")
        meant = np.zeros(KINDS)
        for item in order[last + 1 :]:
            assert item.part == "weight"
            meant[kind_number(kind_of(item, microbatches - 1))] += 1
        assert deferred_weight_passes(stage, microbatches).tolist() == meant.tolist()
