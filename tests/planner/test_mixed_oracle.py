"""The search over several device groups against an independent brute force."""

from __future__ import annotations

import math
import random

import pytest
from mixed_oracle import (
    best_within,
    capped_space,
    random_mixed_space,
    solve_mixed,
)
from oracle import simulator_of
from planning import EQUAL, RULE, request_of

from shardwright.planner.candidates import Evaluator
from shardwright.planner.mixed.search import MixedSearch

SEEDS = 24
LEAST_PLANS, MOST_PLANS = 60, 900


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.timeout(180)
def test_mixed_plans_equal_the_oracle(seed: int) -> None:
    space, _ = random_mixed_space(seed, LEAST_PLANS, MOST_PLANS)
    solved = solve_mixed(space, RULE)
    source = random.Random(f"mixed cap {seed}")
    capacity = {}
    for group in space.cluster.groups:
        needs = sorted(p.needs[group.name] for p in solved if group.name in p.needs)
        capacity[group.name] = int(needs[int(len(needs) * source.uniform(0.2, 0.999))]) + 1
    best_s = best_within(solved, capacity)
    capped = capped_space(space, capacity)
    search = MixedSearch(Evaluator(request_of(capped), simulator_of(capped), RULE))
    found = search.run()
    if math.isinf(best_s):
        assert not found.outcomes
        return
    assert found.outcomes, best_s
    best = found.outcomes[0]
    assert not best.plan.check()
    assert best.step_time_s == pytest.approx(best_s, rel=EQUAL)
    assert found.lower_bound_s == pytest.approx(best_s, rel=EQUAL)
    assert found.stopped_by == "proof"
