"""The least seconds of layers that share a byte budget, bounded by a price of bytes.

For any price λ ≥ 0, ``Σ min(seconds + λ bytes) - λ budget`` is at most what the layers take
within the budget (weak duality of the knapsack); the best λ gives the same bound as the knapsack
with divisible layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
KnapsackRows = Sequence[tuple[float, Floats, Floats]]
"""Layers of a kind: how many, and the seconds and bytes of each option, shape (options,)."""
MAX_STEPS, MULTIPLIER_TOLERANCE = 12, 1e-6
MAX_MULTIPLIER = 1e3
"""Seconds a byte, where nothing fits."""


def best_multiplier(rows: KnapsackRows, budget_bytes: float) -> float:
    """The price of bytes, seconds each, with about the best bound; 0 where all fit anyway.

    A bound's seconds and its bytes over the budget are a line of the price that no bound is above;
    where the line of the best price so far with too many bytes meets that with too few is the next.
    """
    low_s, low_over = lagrangian_at(rows, 0.0, budget_bytes)
    if low_over <= 0:
        return 0.0
    least = [(n, own_s, bytes_, int(bytes_.argmin())) for n, own_s, bytes_ in rows]
    high_s = sum(n * float(own_s[row]) for n, own_s, _, row in least)
    high_over = sum(n * float(bytes_[row]) for n, _, bytes_, row in least) - budget_bytes
    if high_over > 0:
        return MAX_MULTIPLIER
    multiplier = 0.0
    for _ in range(MAX_STEPS):
        multiplier = (high_s - low_s) / (low_over - high_over)
        value, over = lagrangian_at(rows, multiplier, budget_bytes)
        if value >= (low_s + multiplier * low_over) - MULTIPLIER_TOLERANCE * abs(value):
            break
        if over > 0:
            low_s, low_over = value - multiplier * over, over
        else:
            high_s, high_over = value - multiplier * over, over
    return multiplier


def lagrangian_at(
    rows: KnapsackRows, multiplier: float, budget_bytes: float
) -> tuple[float, float]:
    """The bound at a price of seconds a byte, and the bytes over the budget there."""
    seconds, over = 0.0, -budget_bytes
    for count, own_s, bytes_ in rows:
        values = own_s + multiplier * bytes_
        row = int(values.argmin())
        seconds += count * float(values[row])
        over += count * float(bytes_[row])
    return seconds - multiplier * budget_bytes, over
