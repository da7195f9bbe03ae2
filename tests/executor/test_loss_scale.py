"""The loss scale of fp16: halved by an overflow, doubled after many good steps."""

from __future__ import annotations

from shardwright.executor.engine.loss_scale import (
    GROWTH_STEPS,
    INITIAL,
    LARGEST,
    LEAST,
    LossScale,
    scales_loss,
)


def test_only_fp16_is_scaled() -> None:
    assert [scales_loss(name) for name in ("fp32", "bf16", "fp16")] == [False, False, True]


def test_overflows_halve_it_and_start_the_count_again() -> None:
    scale = LossScale(good_steps=7)
    scale.after(overflowed=True)
    assert (scale.value, scale.good_steps) == (INITIAL / 2, 0)


def test_it_doubles_after_enough_good_steps() -> None:
    scale = LossScale()
    for _ in range(GROWTH_STEPS - 1):
        scale.after(overflowed=False)
    assert scale.value == INITIAL
    scale.after(overflowed=False)
    assert (scale.value, scale.good_steps) == (2 * INITIAL, 0)


def test_it_stays_within_its_bounds() -> None:
    low, high = LossScale(value=LEAST), LossScale(value=LARGEST, good_steps=GROWTH_STEPS - 1)
    low.after(overflowed=True)
    high.after(overflowed=False)
    assert (low.value, high.value) == (LEAST, LARGEST)
