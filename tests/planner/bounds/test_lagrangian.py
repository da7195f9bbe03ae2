"""The price of bytes that bounds the least seconds of layers best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.planner.chains.lagrangian import (
    MAX_MULTIPLIER,
    MULTIPLIER_TOLERANCE,
    best_multiplier,
    lagrangian_at,
)
from shardwright.planner.tables.arrays import Floats

POINTS, TINY = 400, 1e-9
Rows = list[tuple[float, Floats, Floats]]


def layers(seed: int, kinds: int, options: int, sizes: float) -> Rows:
    """Kinds of layers with random options; in every second, faster ones need more bytes."""
    source = np.random.default_rng(seed)
    found: Rows = []
    for number in range(kinds):
        own_s, bytes_ = source.random(options), sizes * source.random(options)
        if number % 2:
            own_s, bytes_ = np.sort(own_s**4), np.sort(bytes_)[::-1]
        found.append((float(source.integers(1, 40)), own_s, bytes_))
    return found


def budget(rows: Rows, share: float) -> float:
    """Bytes between the fewest (0) and the most (1) that the rows may need."""
    few, most = (sum(n * float(end(b)) for n, _, b in rows) for end in (np.min, np.max))
    return few + share * (most - few)


CASES = st.builds(
    layers, st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 20), st.sampled_from([1, 1e9])
)


@given(CASES, st.floats(0.0, 1.0))
def test_no_price_bounds_better(rows: Rows, share: float) -> None:
    """A fine grid of prices, up to and around the best one."""
    room = budget(rows, share)
    price = best_multiplier(rows, room)
    found, _ = lagrangian_at(rows, price, room)
    lines = [(s, b) for _, own_s, bytes_ in rows for s in own_s for b in bytes_]
    scale = max(s for s, _ in lines) / max(b for _, b in lines)
    far = np.geomspace(1e-4, 1e4, POINTS) * scale
    grid = [0.0, *far, *(price * np.linspace(0.5, 2.0, POINTS))]
    best = max(lagrangian_at(rows, float(other), room)[0] for other in grid)
    assert found >= best - 2 * MULTIPLIER_TOLERANCE * abs(best)


@given(CASES)
def test_bytes_are_free_where_all_fit(rows: Rows) -> None:
    assert best_multiplier(rows, budget(rows, 1.0) * (1 + TINY)) == 0.0


@given(CASES)
def test_the_fastest_options_fit_wherever_bytes_are_free(rows: Rows) -> None:
    fastest = sum(n * float(bytes_[own_s.argmin()]) for n, own_s, bytes_ in rows)
    assert best_multiplier(rows, fastest * (1 + TINY)) == 0.0
    assert best_multiplier(rows, fastest * (1 - TINY)) > 0.0


@given(CASES, st.floats(0.1, 0.999))
def test_nothing_fits_at_the_most_that_bytes_cost(rows: Rows, share: float) -> None:
    assert best_multiplier(rows, share * budget(rows, 0.0)) == MAX_MULTIPLIER


def test_a_price_by_hand() -> None:
    """One second less for ten bytes more: of two layers one may be the faster, as a mix."""
    rows: Rows = [(2.0, np.array([1.0, 2.0]), np.array([20.0, 10.0]))]
    assert best_multiplier(rows, 30.0) == pytest.approx(0.1)
    assert lagrangian_at(rows, 0.1, 30.0)[0] == pytest.approx(3.0)
