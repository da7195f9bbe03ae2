"""Kernel ridge regression: what it learns, equal bytes, a contradicted row."""

from __future__ import annotations

import math

import numpy as np

from shardwright.costmodel.programs.kernel_ridge import fit_ridge

RANDOM = np.random.default_rng(4)
POINTS = RANDOM.normal(size=(120, 3))
TARGETS = 0.4 * np.sin(POINTS[:, 0]) + 0.2 * POINTS[:, 1] - 0.5
QUERIES = RANDOM.normal(size=(200, 3)) / 2


def test_a_smooth_residual_is_found_from_few_rows() -> None:
    true = 0.4 * np.sin(QUERIES[:, 0]) + 0.2 * QUERIES[:, 1] - 0.5
    fitted = fit_ridge(POINTS, TARGETS)
    assert np.abs(fitted.ridge.at(QUERIES) - true).mean() < 0.03
    assert len(fitted.rows) == len(POINTS)
    far = np.full((1, 3), 1e3)
    assert math.isclose(fitted.ridge.at(far)[0], float(np.median(TARGETS)))


def test_equal_rows_give_equal_bytes() -> None:
    first, second = (fit_ridge(POINTS, TARGETS).ridge for _ in range(2))
    assert first.weights.tobytes() == second.weights.tobytes()
    assert (first.mean, first.width) == (second.mean, second.width)


def test_a_row_ten_times_off_moves_no_price_by_more_than_a_hundredth() -> None:
    poisoned = TARGETS.copy()
    poisoned[17] += math.log(10)
    before, after = (fit_ridge(POINTS, x) for x in (TARGETS, poisoned))
    assert 17 not in after.rows
    moved = np.abs(np.exp(after.ridge.at(QUERIES) - before.ridge.at(QUERIES)) - 1)
    assert moved.mean() <= 0.01
