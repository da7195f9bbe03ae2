"""The search over several device groups against an independent brute force."""

from __future__ import annotations

import pytest
from oracles.heterogeneous_comparison import compare_mixed_seed

SEEDS = 24
LEAST_PLANS, MOST_PLANS = 60, 900


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.timeout(180)
def test_mixed_plans_equal_the_oracle(seed: int) -> None:
    comparison = compare_mixed_seed(seed, LEAST_PLANS, MOST_PLANS)
    assert comparison.plans >= LEAST_PLANS
    assert not comparison.faults, comparison
