"""The planner against the brute force on models of several towers."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from generators.random_spaces import random_cap, random_cluster, random_stack
from generators.tower_cases import encoder_decoder, images_in_text
from oracles.brute_force import Restriction, Space, all_plans, plan_count, solve
from published.planning import RULE, compare

from shardwright.spec.workload.workload import DtypeRecord, Workload

MODELS = {
    "tied": encoder_decoder(1, 1),
    "free": encoder_decoder(1, 1, tied=False),
    "images": images_in_text(1, 1),
}
RESTRICTIONS = {
    "tied": (Restriction(axis="pp", allowed=(1, 2)),),
    "free": (Restriction(axis="shard", allowed=("zero0",)),),
    "images": (Restriction(axis="shard", allowed=("zero0",)),),
}
PLAIN = (
    Restriction(axis="sp", allowed=("none",)),
    Restriction(axis="recompute", allowed=("none", "full")),
    Restriction(axis="vpp", allowed=(1,)),
    Restriction(axis="schedule", allowed=("1f1b",)),
)


def space_of(name: str, seed: int) -> Space:
    source = random.Random(f"towers {name} {seed}")
    cluster = random_cluster(source, 2)
    workload = Workload(
        global_batch=source.choice([2, 4]),
        seq_len=source.choice([128, 512]),
        dtype=DtypeRecord.from_shorthand("fp32"),
    )
    chosen = random_stack(source, cluster)
    space = Space(model=MODELS[name], cluster=cluster, workload=workload, stack=chosen)
    return replace(space, restrictions=(*RESTRICTIONS[name], *PLAIN))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.timeout(180)
def test_planner_equals_oracle_over_towers(name: str, seed: int) -> None:
    space = space_of(name, seed)
    answer = solve(space)
    assert len(answer.plans) >= 100
    plenty = compare(seed, space, answer, 2**50)
    assert not plenty.faults, plenty
    assert plenty.planned_s < math.inf
    capped = compare(seed, space, answer, random_cap(random.Random(seed), answer, RULE))
    assert not capped.faults, capped


@pytest.mark.parametrize("name", MODELS)
def test_the_oracle_counts_its_tower_plans(name: str) -> None:
    space = space_of(name, 0)
    plans = [plan for plan, _ in all_plans(space)]
    assert len(plans) == plan_count(space)
    assert all(plan.check() == [] for plan in plans[:: max(1, len(plans) // 20)])
