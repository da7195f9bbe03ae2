"""The planner against the brute force where states shard over link levels, nested."""

from __future__ import annotations

import pytest
from oracles.bound_checks import check_bounds
from published.nested_spaces import LEAST_PLANS, compare_nested, nested_space

SEEDS, MOST_PLANS = 8, 800


@pytest.mark.parametrize("seed", range(SEEDS))
def test_planner_equals_oracle_where_degrees_nest(seed: int) -> None:
    comparison = compare_nested(seed, MOST_PLANS)
    assert comparison.plans >= LEAST_PLANS
    assert not comparison.faults, comparison


@pytest.mark.parametrize("seed", range(4))
def test_no_bound_is_above_a_random_plan_of_nested_degrees(seed: int) -> None:
    assert check_bounds(nested_space(seed), 25, seed).faults == []
