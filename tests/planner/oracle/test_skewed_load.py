"""Plans of experts under a load that is not even: the planner against the brute force, and bounds.

The fullest rank's rows are lowered like all others, so every bound follows from them.
"""

from __future__ import annotations

import pytest
from oracles.bound_checks import check_bounds
from published.chunked_spaces import chunked_space
from published.planning import compare_drawn
from published.skewed_spaces import skewed_space

MOST_PLANS = 700


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.timeout(180)
def test_planner_equals_oracle_under_a_skewed_load(seed: int) -> None:
    comparison = compare_drawn(seed, skewed_space(seed, MOST_PLANS, skewed=True))
    assert comparison.plans >= 500
    assert comparison.experts
    assert not comparison.faults, comparison


@pytest.mark.parametrize("seed", range(8))
def test_no_bound_is_above_a_plan_under_a_skewed_load(seed: int) -> None:
    space = skewed_space(seed, MOST_PLANS, skewed=True)
    assert check_bounds(space, 25, seed).faults == []


@pytest.mark.parametrize("seed", [12, 14])
def test_layers_of_unlike_loads_are_no_class(seed: int) -> None:
    assert check_bounds(chunked_space(seed), 25, seed).faults == []
