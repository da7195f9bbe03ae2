"""Chains of questions with more memory or more devices."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from generators.random_heterogeneous_plans import MixedDrawer
from generators.random_plans import Drawer
from generators.random_spaces import random_space
from generators.samples import random_problem
from oracles.brute_force import Space, simulator_of
from oracles.heterogeneous_bounds import mixed_search, random_mixed_problem
from oracles.heterogeneous_oracle import mixed_restrictions, with_one_more
from published.planning import RULE, planned

from shardwright.spec.cluster.cluster_spec import ClusterSpec, DeviceGroup
from shardwright.spec.plan.plan import Plan

MOST_PLANS = 1500
LARGE_EVERY, MIXED_EVERY = 16, 16
"""One chain in so many is of a space too large to be proven in full; of several device groups."""
MOST_DEVICES = 8
TRIES = 100
"""Plans that are drawn over several groups before other restrictions are."""
STEPS = 4
"""Pairs of a chain: each step's question is the next one's smaller one."""


def chain(number: int) -> dict[str, Any]:
    """A question and ``STEPS`` larger ones: memory if even, devices if odd.

    Returns:
        Sort and what grows, and of every question the best step, whether it is proven, the
        devices and how many of them the plan uses.
    """
    source = random.Random(f"chain {number}")
    position = number // 2 % LARGE_EVERY
    sort = {LARGE_EVERY - 1: "large", MIXED_EVERY - 2: "mixed"}.get(position, "small")
    space = _question(sort, number, source)
    what = ("memory", "devices")[number % 2]
    grow = _with_more_memory if what == "memory" else _with_more_devices
    answers = [_answer(space)]
    for _ in range(STEPS):
        space = grow(space, source)
        answers.append(_answer(space))
    return {"number": number, "sort": sort, "what": what, "answers": answers}


def _question(sort: str, number: int, source: random.Random) -> Space:
    if sort == "mixed":
        base, plan = mixed_question(number, source)
        need = _reserved_bytes(base, plan)
    else:
        large = sort == "large"
        base = random_problem(number, MOST_DEVICES) if large else random_space(number, MOST_PLANS)
        need = need_bytes(base, source)
    return base.with_memory(int(need * source.uniform(0.8, 1.1)))


def need_bytes(space: Space, source: random.Random) -> float:
    """Need of a random plan: capacities near it make plans differ."""
    return _reserved_bytes(space, Drawer(space, source).draft().plan(space))


def mixed_question(number: int, source: random.Random) -> tuple[Space, Plan]:
    """A provable space over two device groups, and a random plan."""
    base = random_mixed_problem(number, most_blocks=2)
    while True:
        space = replace(base, restrictions=mixed_restrictions(source, base))
        drawer = MixedDrawer(space, source)
        drafts = (drawer.tried() for _ in range(TRIES))
        draft = next((candidate for candidate in drafts if candidate is not None), None)
        if draft is not None:
            return space, draft.plan(space)


def _reserved_bytes(space: Space, plan: Plan) -> float:
    simulation = simulator_of(space).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return max(row.reserved_bytes for row in simulation.memory) * RULE.margin


def _with_more_memory(space: Space, source: random.Random) -> Space:
    """Larger capacities, of several groups perhaps only of one."""
    groups = space.cluster.groups
    chosen = source.choice([*groups, None]) if len(groups) > 1 else None

    def more(group: DeviceGroup) -> DeviceGroup:
        capacity_bytes = int(group.memory.hbm_bytes * (1 + 10 ** source.uniform(-3, 0.5))) + 1
        grows = chosen is None or group == chosen
        return (
            replace(group, memory=replace(group.memory, hbm_bytes=capacity_bytes))
            if grows
            else group
        )

    cluster = replace(space.cluster, groups=tuple(map(more, groups)))
    return replace(space, cluster=cluster)


def _with_more_devices(space: Space, source: random.Random) -> Space:
    grow: Callable[[ClusterSpec, random.Random], ClusterSpec] = grown
    if len(space.cluster.groups) > 1:
        grow = _grown_group
    return replace(space, cluster=grow(space.cluster, source))


def grown(cluster: ClusterSpec, source: random.Random) -> ClusterSpec:
    """The cluster with one or two devices, or a node, more."""
    group, inner = cluster.groups[0], cluster.levels[0]
    if len(cluster.levels) > 1:
        larger = replace(group, nodes=group.nodes + 1)
        outer = replace(cluster.levels[-1], group_size=larger.device_count)
        return replace(cluster, groups=(larger,), levels=(*cluster.levels[:-1], outer))
    count = group.devices_per_node + source.randint(1, 2)
    larger = replace(group, devices_per_node=count)
    return replace(cluster, groups=(larger,), levels=(replace(inner, group_size=count),))


def _grown_group(cluster: ClusterSpec, source: random.Random) -> ClusterSpec:
    return with_one_more(cluster, source.randrange(len(cluster.groups)))


def _answer(space: Space) -> dict[str, Any]:
    """Best plan of a question: each group alone, then together."""
    groups = space.cluster.groups
    alone = [space] if len(groups) == 1 else [_alone(space, group.name) for group in groups]
    alone_results = [result for result in map(planned, alone) if result is not None]
    best = min(
        (result.outcomes[0] for result in alone_results), key=lambda o: o.step_time_s, default=None
    )
    proven = all(result.stopped_by == "proof" for result in alone_results)
    if len(groups) > 1:
        mark_s = best.step_time_s if best is not None else float("inf")
        together = mixed_search(space, best_s=mark_s).run()
        proven = proven and together.stopped_by == "proof"
        better = together.outcomes[:1]
        if better and (best is None or better[0].step_time_s < best.step_time_s):
            best = better[0]
    return {
        "step_s": best and best.step_time_s,
        "proven": proven,
        "devices": space.cluster.device_count,
        "used": best.decision.shape.devices if best else 0,
    }


def _alone(space: Space, name: str) -> Space:
    return replace(space, cluster=space.cluster.alone(name))
