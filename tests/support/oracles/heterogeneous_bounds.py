"""The bounds of the search over several device groups, against random plans that they speak for."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from generators.plan_axes import axes_of
from generators.random_heterogeneous_plans import MixedDraft, MixedDrawer
from generators.random_spaces import random_model, unlimited_stack
from oracles.bound_checks import ROUNDING, space_asked
from oracles.brute_force import Space, simulator_of
from oracles.heterogeneous_oracle import Clusters, capped_space, random_mixed_cluster, samples_of
from oracles.question_bounds import Questioned
from published.planning import EQUAL, RULE, request_of

from shardwright.costmodel.simulation.simulator import Simulation
from shardwright.datasets.catalogue.device import device
from shardwright.planner.candidates.evaluator import Evaluator
from shardwright.planner.heterogeneous.build import heterogeneous_search
from shardwright.planner.heterogeneous.enumeration import bounded_stage_plans
from shardwright.planner.heterogeneous.shape_costs import HeterogeneousCosts
from shardwright.planner.heterogeneous.work_limits import HeterogeneousLimits
from shardwright.planner.search.branch_and_bound import BranchAndBound
from shardwright.planner.space.pipeline_shape import DeviceSlice, PipelineShape
from shardwright.spec.choices import OVERLAPS
from shardwright.spec.workload.workload import DtypeRecord, Workload

PROVING = HeterogeneousLimits(enumerated=400_000, tries=2000, simulated=500)


def random_mixed_problem(
    seed: int, most_blocks: int = 8, clusters: Clusters = random_mixed_cluster
) -> Space:
    """Some device groups and a model of up to ten layers, without restrictions."""
    source = random.Random(f"mixed problem {seed}")
    cluster = clusters(source)
    kinds = [device(group.device) for group in cluster.groups]
    dtypes = [d for d in kinds[0].dtypes if d != "tf32" and all(d in k.dtypes for k in kinds)]
    flash = all(kind.flash_attention for kind in kinds) and source.random() < 0.7
    chosen = unlimited_stack(source.choice(["shardwright", "shardwright", "megatron"]))
    return Space(
        model=random_model(source, source.choice([n for n in (1, 2, 4, 6, 8) if n <= most_blocks])),
        cluster=cluster,
        workload=Workload(
            global_batch=source.choice([2, 3, 4, 6, 8, 12]),
            seq_len=source.choice([256, 512, 1024, 2048]),
            dtype=DtypeRecord.from_shorthand(source.choice(dtypes)),
            gradient_clip_norm=source.choice([1.0, None]),
        ),
        stack=replace(chosen, attention="flash" if flash else "unfused").with_overlap(
            source.choice(OVERLAPS)
        ),
    )


def mixed_search(
    space: Space, limits: HeterogeneousLimits | None = None, best_s: float = float("inf")
) -> BranchAndBound:
    """A search over the device groups of a space together."""
    evaluator = Evaluator(request_of(space), simulator_of(space), RULE)
    return heterogeneous_search(evaluator, limits, best_s=best_s)


def check_mixed_question(space: Space, plans: int, seed: int) -> Questioned:
    """As `check_question`, of a cluster of several device groups."""
    source = random.Random(f"mixed question {seed}")
    drawer, simulator = MixedDrawer(space, source), simulator_of(space)
    costs = HeterogeneousCosts(Evaluator(request_of(space), simulator, RULE))
    found, timed = Questioned(), []
    for _ in range(plans):
        draft = drawer.draft()
        plan = draft.plan(space)
        simulation = simulator.run(plan)
        assert simulation is not None
        found.axes.update(axes_of(plan))
        needs = needs_of(simulation)
        _note_bounds(found, costs, draft, simulation, needs)
        timed.append((needs, simulation.step_time_s, draft))
    capacity = {}
    for group in space.cluster.groups:
        own = sorted(needs[group.name] for needs, _, _ in timed if group.name in needs)
        capacity[group.name] = int(own[int(len(own) * source.uniform(0.6, 1))]) + 1
    answer = mixed_search(capped_space(space, capacity), PROVING).run()
    found.stopped_by = answer.stopped_by
    for needs, step_s, draft in timed:
        if any(need > capacity[name] for name, need in needs.items()):
            continue
        found.fitting += 1
        _note(found, "mixed lower_bound_s", answer.lower_bound_s, step_s, draft)
        if not answer.outcomes:
            found.tightness.faults.append(f"nothing is found that fits {capacity}; {draft}")
        elif answer.stopped_by == "proof" and step_s < answer.outcomes[0].step_time_s * (1 - EQUAL):
            found.tightness.faults.append(
                f"proven {answer.outcomes[0].step_time_s} s is slower than {step_s} s of {draft}"
            )
    return found


def needs_of(simulation: Simulation) -> dict[str, float]:
    """The most bytes that a device of each group needs."""
    needs: dict[str, float] = {}
    for row in simulation.memory:
        own = row.reserved_bytes * RULE.margin
        needs[row.device_group] = max(needs.get(row.device_group, 0.0), own)
    return needs


def _note_bounds(
    found: Questioned,
    costs: HeterogeneousCosts,
    draft: MixedDraft,
    simulation: Simulation,
    needs: dict[str, float],
) -> None:
    """The bounds of shape and plan, on devices that hold just what the plan needs."""
    batch = costs.request.workload.global_batch
    shape, step_s = _shape(draft, batch), simulation.step_time_s
    own = {
        name: int(needs.get(name, 0)) + 1 for name in (g.name for g in costs.request.cluster.groups)
    }
    capped = capped_space(space_asked(costs.request), own).cluster
    costs.request = replace(costs.request, cluster=capped)
    found.tightness.plans += 1
    _note(found, "mixed shape", costs.compute.bound_s(shape), step_s, draft)
    _note(found, "mixed floor", costs.efficiency.global_bound_s(), step_s, draft)
    tables = []
    for stage in costs.tables(shape):
        rows = []
        for layer, each in enumerate(stage):
            wanted = draft.strategies[layer]
            if each is None or wanted not in each[0].strategies:
                rows.append(None)
                continue
            kept = np.array([strategy == wanted for strategy in each[0].strategies])
            rows.append(tuple(table.only(kept) for table in each))
        tables.append(rows)
    budgets = costs.budgets(shape)
    bounded = list(bounded_stage_plans(shape, draft.boundaries, tables, budgets, float("inf")))
    if not bounded:
        found.tightness.faults.append(f"budgets {budgets} or tables cut {draft}")
        return
    _note(found, "mixed plan", bounded[0][0] + simulation.host_s, step_s, draft)


def _shape(draft: MixedDraft, batch: int) -> PipelineShape:
    p = draft.pipeline
    samples = batch // p.microbatches
    places = tuple(
        tuple(
            DeviceSlice(
                part.device_group,
                part.first_rank,
                part.count,
                samples_of(part, samples),
            )
            for part in stage
        )
        for stage in draft.held
    )
    return PipelineShape(p.stages, 0, p.kind, p.chunks, p.microbatches, places)


def _note(found: Questioned, name: str, bound_s: float, step_s: float, draft: MixedDraft) -> None:
    tightness = found.tightness
    ratio = bound_s / step_s
    tightness.largest[name] = max(tightness.largest.get(name, 0.0), ratio)
    tightness.total[name] = tightness.total.get(name, 0.0) + ratio
    if ratio > 1 + ROUNDING:
        tightness.faults.append(f"{name} {ratio:.6f} of {draft}")
