"""Chains of questions with more memory, host memory, devices or bandwidth."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from generators.growth import GROWTH
from generators.random_heterogeneous_plans import MixedDrawer
from generators.random_plans import Drawer
from generators.random_spaces import random_space
from generators.samples import random_problem
from oracles.brute_force import Space, simulator_of
from oracles.heterogeneous_bounds import mixed_search, random_mixed_problem
from oracles.heterogeneous_oracle import mixed_restrictions
from published.planning import RULE, planned

from shardwright.spec.plan.plan import Plan

MOST_PLANS = 1500
WHATS = tuple(GROWTH)
LARGE_EVERY, MIXED_EVERY = 16, 16
"""One chain in so many is of a space too large to be proven in full; of several device groups."""
MOST_DEVICES = 8
TRIES = 100
"""Plans that are drawn over several groups before other restrictions are."""
STEPS = 4
"""Pairs of a chain: each step's question is the next one's smaller one."""


def chain(number: int) -> dict[str, Any]:
    """A question and ``STEPS`` larger ones, each of more of one of ``WHATS``.

    Returns:
        Sort and what grows, and of every question the best step, whether it is proven, the
        devices and how many of them the plan uses.
    """
    source = random.Random(f"chain {number}")
    position = number // len(WHATS) % LARGE_EVERY
    sort = {LARGE_EVERY - 1: "large", MIXED_EVERY - 2: "mixed"}.get(position, "small")
    space = _question(sort, number, source)
    what = WHATS[number % len(WHATS)]
    grow = GROWTH[what]
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
