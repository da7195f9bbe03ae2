"""Learning rates: what is typed, and the rate of each step."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.spec.errors import InputError
from shardwright.spec.workload.learning_rate import DECAYS, LearningRate, learning_rate


def test_a_number_is_the_rate_of_every_step() -> None:
    assert {learning_rate("2e-4").at(step, 10) for step in range(30)} == {2e-4}


def test_cosine_rises_falls_and_stays() -> None:
    rate = learning_rate("cosine:peak=1e-2,warmup=4,steps=12,floor=1e-3")
    found = [rate.at(step, 99) for step in range(15)]
    assert found[:4] == pytest.approx([0.0025, 0.005, 0.0075, 0.01])
    assert found[4] == pytest.approx(0.01)
    assert found[8] == pytest.approx((0.01 + 0.001) / 2)  # half way: the middle of peak and floor
    assert found[12:] == pytest.approx([0.001] * 3)


def test_a_decay_without_steps_ends_with_the_run() -> None:
    rate = learning_rate("linear:peak=1e-3")
    assert [rate.at(step, 4) for step in range(5)] == pytest.approx(
        [1e-3, 7.5e-4, 5e-4, 2.5e-4, 0.0]
    )


@given(
    decay=st.sampled_from(DECAYS),
    peak=st.floats(1e-6, 1.0),
    share=st.floats(0, 1),
    warmup=st.integers(0, 20),
    rest=st.integers(1, 50),
)
def test_rates_never_leave_floor_and_peak_and_fall_after_the_warmup(
    decay: str, peak: float, share: float, warmup: int, rest: int
) -> None:
    floor = peak * share
    rate = LearningRate(
        decay=next(d for d in DECAYS if d == decay),
        peak=peak,
        warmup=warmup,
        steps=warmup + rest,
        floor=floor,
    )
    found = [rate.at(step, 1) for step in range(warmup + rest + 3)]
    assert all(0 < r <= peak * (1 + 1e-12) or r == floor for r in found)
    rising, falling = found[:warmup], found[warmup:]
    assert rising == sorted(rising)
    assert all(a >= b - 1e-15 for a, b in pairwise(falling))
    assert math.isclose(falling[-1], peak if decay == "constant" else floor, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fast", "a number, or cosine"),
        ("cosin:peak=1", "nearest: cosine"),
        ("-1", "a number"),
        ("nan", "a number"),
        ("cosine:top=1", "peak"),
        ("cosine:peak=0", "above 0"),
        ("cosine:warmup=1.5", "whole number"),
        ("cosine:steps=0", "at least 1"),
        ("cosine:peak=1e-3,floor=1e-2", "at most the peak"),
        ("cosine:warmup=9,steps=5", "at most steps"),
    ],
)
def test_bad_rates_are_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        learning_rate(text)
    line = str(caught.value)
    assert "--lr" in line
    assert said in line or "cosine" in line
    assert "\n" not in line
