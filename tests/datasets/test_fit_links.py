"""The fit behind the fabric curves finds lines that are there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.datasets.catalogue.fit_links import fit_two_regimes

WIRE_BYTES = 2.0 ** np.arange(9, 30)


@given(
    st.floats(2e-6, 3e-5),
    st.floats(0.05, 0.4),
    st.floats(2.0, 6.0),
    st.floats(0.5, 1.0),
)
def test_two_exact_lines_are_recovered(
    small_s: float, small: float, growth: float, bulk: float
) -> None:
    rate = 450e9
    bulk_s = small_s * growth
    time_s = np.minimum(small_s + WIRE_BYTES / (rate * small), bulk_s + WIRE_BYTES / (rate * bulk))
    found = fit_two_regimes(WIRE_BYTES, time_s, rate)
    assert found.largest_error < 0.02
    assert found.bulk_efficiency == pytest.approx(bulk, rel=0.02)
    assert found.small_setup_s == pytest.approx(small_s, rel=0.02)


def test_too_few_points_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least six"):
        fit_two_regimes(WIRE_BYTES[:5], WIRE_BYTES[:5], 1e9)
