"""The planner against the brute force where hosts hold too little of what devices lack."""

from __future__ import annotations

import pytest
from toys.tier_spaces import LEAST_PLANS, compare_tiers

SEEDS, MOST_PLANS = 8, 800


@pytest.mark.parametrize("seed", range(SEEDS))
def test_planner_equals_oracle_where_hosts_bind(seed: int) -> None:
    comparison = compare_tiers(seed, MOST_PLANS)
    assert comparison.plans >= LEAST_PLANS
    assert not comparison.faults, comparison
    assert comparison.host_binds == (seed % 2 == 0)
