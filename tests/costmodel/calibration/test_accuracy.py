"""Scores of predictions: against closed cases, and what no scaling may change."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.costmodel.explain.accuracy import (
    LEAST_LAYOUTS,
    errors_of,
    ranking_of,
    spearman,
    top1_regret,
)

SECONDS = st.floats(min_value=1e-3, max_value=1e3)
GROUPS = st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=12)


def test_errors_of_known_pairs() -> None:
    found = errors_of([(1.1, 1.0), (0.8, 1.0), (2.0, 1.0), (1.0, 1.0)])
    assert found.median_ape == pytest.approx(0.15)
    assert found.mape == pytest.approx(1.3 / 4)
    assert found.p90_ape == pytest.approx(1.0)
    assert found.signed_median == pytest.approx(0.05)


def test_nothing_has_no_errors() -> None:
    assert errors_of([]).median_ape is None
    assert ranking_of([]).spearman is None


def test_small_groups_say_nothing_of_order() -> None:
    small = [(float(i), float(i)) for i in range(LEAST_LAYOUTS - 1)]
    large = [(float(i), float(i + 1)) for i in range(LEAST_LAYOUTS)]
    assert ranking_of([small]).groups == 0
    found = ranking_of([small, large, [(p, 6 - m) for p, m in large]])
    assert found.groups == 2
    assert found.spearman == pytest.approx(0)
    assert found.top1_regret == pytest.approx((0 + 4) / 2)


def test_ties_share_their_mean_rank() -> None:
    group = [(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert spearman(group) == pytest.approx(1.5 / math.sqrt(1.5 * 2))
    assert spearman([(1.0, 1.0), (1.0, 2.0)]) == 0


@given(GROUPS, st.floats(min_value=0.1, max_value=10))
def test_order_does_not_depend_on_scale(group: list[tuple[float, float]], factor: float) -> None:
    scaled = [(predicted * 2.0 ** round(factor), measured) for predicted, measured in group]
    assert spearman(scaled) == pytest.approx(spearman(group))
    assert top1_regret(scaled) == top1_regret(group)
    assert -1 - 1e-9 <= spearman(group) <= 1 + 1e-9
    assert top1_regret(group) >= 0


@given(GROUPS)
def test_a_perfect_prediction_has_no_error(group: list[tuple[float, float]]) -> None:
    perfect = [(measured, measured) for _, measured in group]
    assert errors_of(perfect).p90_ape == 0
    assert top1_regret(perfect) == 0
