"""The search over several device groups held against the brute force, on random spaces."""

from __future__ import annotations

import math
import random

from oracles.heterogeneous_bounds import mixed_search
from oracles.heterogeneous_oracle import (
    Clusters,
    best_within,
    capped_space,
    random_mixed_cluster,
    random_mixed_space,
    solve_mixed,
)
from published.planning import RULE, Comparison, block_kinds

from shardwright.planner.heterogeneous.search_space import is_uniform
from shardwright.spec.model.experts import experts_of


def compare_mixed_seed(
    seed: int, least: int, most: int, clusters: Clusters = random_mixed_cluster
) -> Comparison:
    """Solve a random space over device groups and hold the planner against it.

    Args:
        seed: of the space and of the memory of its groups.
        least: legal plans that it has at least.
        most: and at most.
        clusters: draws the cluster.
    """
    space, _ = random_mixed_space(seed, least, most, clusters)
    solved = solve_mixed(space, RULE)
    source = random.Random(f"mixed cap {seed}")
    capacity = {}
    for group in space.cluster.groups:
        needs = sorted(p.needs[group.name] for p in solved if group.name in p.needs) or [0.0]
        capacity[group.name] = int(needs[int(len(needs) * source.uniform(0.2, 0.999))]) + 1
    found = mixed_search(capped_space(space, capacity)).run()
    best = found.outcomes[0] if found.outcomes else None
    if best is not None and (violations := best.plan.check()):
        raise AssertionError(f"mixed space {seed}: an illegal plan: {violations[0]}")
    equal = [p for p in solved if not p.unequal]
    return Comparison(
        seed=seed,
        plans=len(solved),
        feasible=sum(all(need <= capacity[g] for g, need in p.needs.items()) for p in solved),
        simulated=found.simulated,
        best_s=best_within(solved, capacity),
        best_unlimited_s=min(p.step_time_s for p in solved),
        best_uniform_s=best_within(equal, capacity),
        planned_s=best.step_time_s if best else math.inf,
        lower_bound_s=found.lower_bound_s if best else 0.0,
        stopped_by=found.stopped_by if best else "nothing fits",
        experts=any(experts_of(layer) for layer in space.model.kinds()),
        block_kinds=block_kinds(space),
        uneven=best is not None and not is_uniform(best.decision.shape),
    )
