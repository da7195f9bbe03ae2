"""Neighbors of the best plans respect bounds and proven answers."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from generators.catalogue_problems import space as real_space
from generators.random_heterogeneous_plans import MixedDrawer
from items.planner.neighbors import capped_mixed_space, capped_space
from neighbors.heterogeneous_neighbors import MIXED_STAGES, is_searched
from neighbors.neighbor_checks import check_mixed_neighbors, check_neighbors
from neighbors.plan_neighbors import neighbor
from oracles.heterogeneous_bounds import mixed_search, random_mixed_problem

from shardwright.planner.heterogeneous.efficiency_bound import EfficiencyBound
from shardwright.planner.heterogeneous.work_limits import HeterogeneousLimits
from shardwright.planner.search.enumeration import Enumeration

QUICK = HeterogeneousLimits(
    alternatives=20, estimates=40, heuristic_shapes=6, tries=300, simulated=60
)


@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_beside_the_best_plans_is_below_the_bound(seed: int) -> None:
    found = check_neighbors(capped_space(seed), 20, seed)
    assert found.fitting == sum(found.moves.values()) == 20
    assert not found.faults


@pytest.mark.parametrize(("seed", "ended"), [(19, "proof"), (20, "work"), (21, "work")])
def test_nothing_beside_the_best_mixed_plans_is_below_the_bound(seed: int, ended: str) -> None:
    found = check_mixed_neighbors(capped_mixed_space(seed), 30, seed, limits=QUICK)
    assert found.stopped_by == ended
    assert found.fitting == sum(found.moves.values()) == 30
    assert not found.faults
    assert not found.unlisted_faults


def test_nothing_beside_the_best_plans_of_a_real_mixed_question_is_below_the_bound() -> None:
    space = real_space("gpt2", "1x4xA100-80GB+1x2xH100-80GB", 24, 512)
    found = check_mixed_neighbors(space, 60, 0, alone_first=True, limits=QUICK)
    assert found.fitting == 60
    assert not found.faults
    assert not found.unlisted_faults


@pytest.mark.evidence
@pytest.mark.parametrize("seed", [34, 40])
def test_shapes_beside_the_best_mixed_plan_are_looked_into(seed: int) -> None:
    """Other micro-batches or depths of the same stages, of which few were looked into at first."""
    space = capped_mixed_space(seed)
    narrow = mixed_search(space, replace(HeterogeneousLimits(), near_rounds=0)).run()
    found = mixed_search(space).run()
    assert found.outcomes[0].step_time_s < 0.9 * narrow.outcomes[0].step_time_s


def test_a_proof_of_nothing_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One shape is looked into, and all others are said to hold nothing faster."""
    monkeypatch.setattr(Enumeration, "run", lambda self, shape, quota: True)
    lazy = replace(QUICK, estimates=1, heuristic_shapes=1)
    found = check_mixed_neighbors(capped_mixed_space(27), 30, 27, limits=lazy)
    assert found.stopped_by == "proof"
    assert found.faults


def test_a_floor_that_is_too_high_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = EfficiencyBound.global_bound_s
    monkeypatch.setattr(EfficiencyBound, "global_bound_s", lambda self: 100 * plain(self))
    found = check_mixed_neighbors(capped_mixed_space(20), 30, 20, limits=QUICK)
    assert found.faults
    assert found.unlisted_faults


def test_mixed_neighbors_differ_in_all_that_is_decided() -> None:
    """Every move leads to legal plans, some of which no search lists."""
    moves: Counter[str] = Counter()
    listed: Counter[bool] = Counter()
    for seed in range(6):
        space = random_mixed_problem(seed)
        source = random.Random(f"mixed moves {seed}")
        base = MixedDrawer(space, source).draft()
        for number in range(30):
            beside = neighbor(source, space, base, 1 + number % 2, MIXED_STAGES)
            if beside is None:
                continue
            assert beside.draft != base
            moves.update(beside.moves)
            listed.update([is_searched(space, beside.draft)])
    assert set(moves) == set(MIXED_STAGES.moves)
    assert min(listed[True], listed[False]) > 0
