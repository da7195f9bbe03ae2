"""The brute force itself, and what the planner's answers to it rest on."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import pytest
from generators.random_spaces import random_cap, random_space
from oracles.brute_force import (
    Answer,
    Restriction,
    Space,
    all_plans,
    layer_choices,
    pipelines,
    plan_count,
    solve,
)
from published.planning import RULE, compare, planned, request_of, search_of

from shardwright.planner.space.search_space import SearchSpace
from shardwright.spec.errors import InfeasibleError

drawn = cache(random_space)
"""Spaces by seed and size, each drawn once."""


@cache
def solved() -> Answer:
    """The brute force's answer to one space, shared by tests."""
    return solve(drawn(0, 1000))


def small_space(**fields: Any) -> Space:
    """A space of a few hundred plans."""
    space = drawn(3, 1000)
    return Space(
        model=space.model,
        cluster=space.cluster,
        workload=space.workload,
        stack=space.stack,
        **fields,
    )


def test_oracle_counts_what_it_enumerates() -> None:
    for seed in (0, 4):
        space = drawn(seed, 1000)
        plans = [plan for plan, _ in all_plans(space)]
        assert len(plans) == plan_count(space)
        assert len({plan.hash for plan in plans}) == len(plans)
        assert not any(plan.check() for plan in plans[::5])


@pytest.mark.parametrize("seed", [1, 2, 8])
def test_planner_has_every_pipeline_and_strategy_of_the_oracle(seed: int) -> None:
    """Apart from one-stage schedules other than 1f1b, which the planner holds to be dominated."""
    space = drawn(seed, 1000)
    ours = SearchSpace(request_of(space))
    found = set()
    for shape in ours.shapes():
        samples = space.workload.global_batch // shape.microbatches
        options = tuple(
            frozenset(ours.options(kind, shape.ranks, samples)) for kind in ours.layer_classes
        )
        assert shape.places == ()
        found.add((tuple(shape)[:5], options))
    expected = set()
    for p in pipelines(space):
        options = tuple(frozenset(choices) for choices in layer_choices(space, p))
        dominated = p.stages == 1 and p.kind != "1f1b" and space.allowed("schedule", "1f1b")
        if all(options) and not dominated:
            expected.add(((p.stages, p.width, p.kind, p.chunks, p.microbatches), options))
    assert found == expected


@pytest.mark.parametrize(
    ("axis", "value"),
    [("tp", 2), ("sp", "megatron"), ("shard", "zero1"), ("shard", "zero3"), ("recompute", "full")],
)
def test_one_value_means_the_same_as_a_pin(axis: str, value: int | str) -> None:
    """Layers that an axis does not speak of are left alone in both forms."""
    restricted = small_space(restrictions=(Restriction(axis=axis, allowed=(value,)),))
    layers = len(restricted.model.layers())
    pinned = small_space(
        restrictions=(Restriction(axis=axis, allowed=(value,), layers=(0, layers - 1)),)
    )
    assert {r.layers for r in restricted.restrictions} != {r.layers for r in pinned.restrictions}
    answers = [planned(space) for space in (restricted, pinned)]
    assert all(answers)
    times = {found.outcomes[0].step_time_s for found in answers if found}
    assert len(times) == 1


def test_nothing_fits_is_said() -> None:
    space = drawn(0, 1000)
    answer = solved()
    least = min(p.reserved_bytes for p in answer.plans) * RULE.margin
    assert planned(space.with_memory(int(least) - 1)) is None
    with pytest.raises(InfeasibleError, match="hbm"):
        search_of(space.with_memory(int(least) - 1)).run()
    assert planned(space.with_memory(int(least) + 1)) is not None


def test_a_wrong_planner_would_be_seen() -> None:
    """The comparison notices a plan that is only slightly slower than the best one."""
    space = drawn(0, 1000)
    answer = solved()
    cap = random_cap(random.Random(0), answer, RULE)
    good = compare(0, space, answer, cap)
    assert not good.faults
    best = min(answer.plans, key=lambda p: p.step_time_s)
    faster = Answer(plans=[*answer.plans])
    faster.plans.append(type(best)(good.best_s * (1 - 1e-8), 0, False))
    assert any("planned" in fault for fault in compare(0, space, faster, cap).faults)
    assert math.isfinite(good.best_s)
