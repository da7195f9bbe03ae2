"""Numbers as a person reads them: three digits, and the unit that they round to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.spec.units import format_seconds


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (0.0, "0 s"),
        (13.84, "13.8 s"),
        (1234.4, "1234 s"),
        (999.96, "1000 s"),
        (0.99996, "1 s"),
        (9.9999999e-4, "1 ms"),
        (-9.9999999e-4, "-1 ms"),
        (0.0412, "41.2 ms"),
        (7.5e-6, "7.5 us"),
    ],
)
def test_seconds_are_shown_in_the_unit_that_they_round_to(time_s: float, text: str) -> None:
    assert format_seconds(time_s) == text


@given(st.floats(1e-6, 1e9))
def test_no_time_is_shown_with_an_exponent(time_s: float) -> None:
    assert "e" not in format_seconds(time_s)
