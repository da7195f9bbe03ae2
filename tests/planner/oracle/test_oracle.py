"""The planner against the independent brute force (tests/support/oracles/brute_force.py)."""

from __future__ import annotations

import pytest
from published.planning import compare_seed

SEEDS = 30
MOST_PLANS = 1000
"""Small enough spaces for the quick tier; the evidence tier goes to 6,000 plans."""


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.timeout(180)
def test_planner_equals_oracle(seed: int) -> None:
    comparison = compare_seed(seed, MOST_PLANS)
    assert comparison.plans >= 500
    assert not comparison.faults, comparison
