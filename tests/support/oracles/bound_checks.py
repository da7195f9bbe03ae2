"""Every bound that the search uses, against plans it speaks for."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np
from generators.random_plans import Draft, Drawer, capped
from generators.random_spaces import PLENTY_BYTES
from oracles.brute_force import Space, needed_bytes, simulator_of
from published.planning import RULE, parts_of

from shardwright.costmodel.pricing.group_pricer import stage_group
from shardwright.costmodel.simulation.overlapped_passes import PAIRED_KINDS
from shardwright.costmodel.simulation.simulator import Simulation, Simulator, pass_kind_counts
from shardwright.planner.bounds.shape_bounds import ShapeBounds
from shardwright.planner.dynamic_programming.enumeration import bounded_plans
from shardwright.planner.space.search_space import PipelineShape, Request
from shardwright.planner.tables.option_table import OptionTable
from shardwright.spec.schedules.stage_order import ALL_KINDS

ROUNDING = 1e-12


@dataclass
class Tightness:
    """Largest and mean ratio of each bound to the simulated step, and what was above it."""

    plans: int = 0
    largest: dict[str, float] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def note(self, name: str, bound_s: float, step_s: float, draft: Draft) -> None:
        ratio = bound_s / step_s
        self.largest[name] = max(self.largest.get(name, 0.0), ratio)
        self.total[name] = self.total.get(name, 0.0) + ratio
        if ratio > 1 + ROUNDING:
            self.faults.append(f"{name} {ratio:.6f} of {draft}")

    @property
    def mean(self) -> dict[str, float]:
        return {name: total / self.plans for name, total in self.total.items()}


def check_bounds(space: Space, plans: int, seed: int) -> Tightness:
    """Random plans on devices that hold just what each needs, which is where bounds are tight."""
    drawer = Drawer(space, random.Random(f"bounds {seed}"), ALL_KINDS)
    bounds = parts_of(space.with_memory(PLENTY_BYTES)).bounds
    simulator = simulator_of(space)
    found = Tightness()
    for _ in range(plans):
        draft = drawer.draft()
        plan = draft.plan(space)
        simulation = simulator.run(plan)
        assert simulation is not None
        note_bounds(found, bounds, simulator, draft, simulation)
    return found


def note_bounds(
    found: Tightness,
    bounds: ShapeBounds,
    simulator: Simulator,
    draft: Draft,
    simulation: Simulation,
) -> None:
    """Every bound that speaks for a plan, on devices that hold just what it needs."""
    contexts = bounds.contexts
    space = space_asked(contexts.request)
    cluster = capped(space, needed_bytes(simulation, "hbm"), RULE.margin).cluster
    if contexts.tier_budget:
        needed = int(needed_bytes(simulation, "host") * RULE.margin) + 1
        groups = (replace(g, memory=replace(g.memory, host_bytes=needed)) for g in cluster.groups)
        cluster = replace(cluster, groups=tuple(groups))
    contexts.request = replace(contexts.request, cluster=cluster)
    found.plans += 1
    p = draft.pipeline
    shape = PipelineShape(p.stages, p.width, p.kind, p.chunks, p.microbatches)
    step_s, end_s = simulation.step_time_s, bounds.quick.end_s(shape)
    if abs(end_s - simulation.norm_s - simulation.host_s) > 1e-9 * end_s:
        found.faults.append(f"end of the step {end_s}: {draft}")
    found.note("shape", bounds.exact_s(shape), step_s, draft)
    tables = [
        _row(table, draft, number) for number, table in enumerate(bounds.tables.layers(shape))
    ]
    budget = contexts.budget(shape)
    own = list(bounded_plans(shape, draft.boundaries, tables, budget, float("inf")))
    if not own:
        found.faults.append(f"live budget {budget} cuts {draft}")
    else:
        found.note("plan", own[0][0] + end_s, step_s, draft)
    plan = draft.plan(space_asked(contexts.request))
    if p.kind not in PAIRED_KINDS:
        counts = pass_kind_counts(p.kind, p.microbatches, p.chunks)
        groups = [stage_group(stage) for stage in plan.program.stages]
        link_spans = [each[0] for each in simulator.link_spans(plan)]
        held = zip(simulation.chunks, groups, link_spans, strict=True)
        times = [simulator._times(counts, *of_stage) for of_stage in held]
        found.note("give up", simulator.step_lower_bound_s(counts, times), step_s, draft)


def space_asked(request: Request) -> Space:
    """The space of a request, to build its plans in."""
    return Space(
        model=request.model,
        cluster=request.cluster,
        workload=request.workload,
        stack=request.stack,
        program=tuple(request.program.items()),
    )


def _row(table: OptionTable, draft: Draft, number: int) -> OptionTable:
    """The row of a plan's layer, or of the layer that dominates it: with fewer techniques."""
    wanted = draft.strategies[number]
    plain, values = replace(wanted, techniques={}), {*wanted.techniques.items()}
    held = [
        len(values & {*strategy.techniques.items()})
        if {*strategy.techniques.items()} <= values and replace(strategy, techniques={}) == plain
        else -1
        for strategy in table.strategies
    ]
    assert max(held) >= 0, (wanted, number)
    assert held.count(max(held)) == 1, (wanted, number)
    return table.only(np.array(held) == max(held))
