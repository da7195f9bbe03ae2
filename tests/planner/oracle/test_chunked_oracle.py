"""The planner against the brute force where it finds chunks of experts and of products."""

from __future__ import annotations

import pytest
from published.chunked_spaces import LEAST_PLANS, chunked_space
from published.overlapped_spaces import overlapped_space
from published.planning import compare_drawn


@pytest.mark.parametrize("seed", [43, 35])
def test_planner_equals_oracle_where_fewer_bytes_beat_the_quickest_chunks(seed: int) -> None:
    comparison = compare_drawn(seed, chunked_space(seed))
    assert comparison.plans >= LEAST_PLANS
    assert comparison.memory_binds
    assert not comparison.faults, comparison


@pytest.mark.parametrize("seed", range(4))
def test_planner_equals_oracle_over_chunks_of_products(seed: int) -> None:
    comparison = compare_drawn(seed, overlapped_space(seed))
    assert comparison.plans >= LEAST_PLANS
    assert not comparison.faults, comparison
