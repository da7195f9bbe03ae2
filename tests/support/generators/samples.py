"""Random plans with everything that is needed to price them: the examples of property tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import lru_cache

from generators.random_plans import Draft, Drawer, reshaped
from generators.random_spaces import (
    random_cluster,
    random_model,
    random_profile,
    random_stack,
    random_workload,
)
from oracles.brute_force import Space, simulator_of

from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.spec.plan.plan import Plan
from shardwright.spec.rules.plan_rules import schedule_violation, tied_embedding_violation
from shardwright.spec.schedules.stage_order import SPLIT_KINDS, V_KINDS


@dataclass(frozen=True)
class Sample:
    """A legal plan of a random space, simulated."""

    space: Space
    draft: Draft
    plan: Plan
    simulator: Simulator
    simulation: Simulation


def random_problem(seed: int, most_devices: int = 16) -> Space:
    """A space without restrictions, of any size."""
    source = random.Random(f"problem {seed}")
    devices = source.choice([d for d in (1, 2, 4, 6, 8, 12, 16) if d <= most_devices])
    cluster = random_cluster(source, devices)
    return Space(
        model=random_model(source, source.choice([1, 2, 4, 6, 8])),
        cluster=cluster,
        workload=random_workload(source, cluster),
        stack=random_stack(source, cluster),
        profile=random_profile(source, cluster),
    )


@lru_cache(maxsize=256)
def sample(seed: int) -> Sample:
    """The sample called ``seed``; equal seeds give the same object."""
    space = random_problem(seed % 64)
    draft = Drawer(space, random.Random(f"draft {seed}")).draft()
    plan, simulator = draft.plan(space), simulator_of(space)
    simulation = simulator.run(plan)
    assert simulation is not None
    return Sample(space, draft, plan, simulator, simulation)


@lru_cache(maxsize=256)
def split_sample(seed: int) -> Sample:
    """The sample called ``seed`` of a schedule that splits the backward."""
    source = random.Random(f"split {seed}")
    kind = SPLIT_KINDS[seed % len(SPLIT_KINDS)]
    while True:
        space = random_problem(source.randrange(64))
        drawer = Drawer(space, source)
        draft = drawer.draft()
        p, layers = draft.pipeline, len(space.model.layers())
        chunks = 2 if kind in V_KINDS else 1
        if schedule_violation(kind, p.stages, chunks, p.microbatches, layers) is None:
            break
    parts = p.stages * chunks
    draft = replace(reshaped(draft, kind=kind, chunks=chunks), boundaries=drawer.boundaries(parts))
    assert tied_embedding_violation(space.model, draft.strategies) is None
    plan, simulator = draft.plan(space), simulator_of(space)
    assert not plan.check()
    simulation = simulator.run(plan)
    assert simulation is not None
    return Sample(space, draft, plan, simulator, simulation)
