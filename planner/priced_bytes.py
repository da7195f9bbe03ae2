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
Rows = Sequence[tuple[float, Floats, Floats]]
"""Layers of a kind: how many, and the seconds and bytes of each option, shape (options,)."""
STEPS = 10
FIRST_PRICE, GROWTH, MOST_PRICE = 1e-13, 8.0, 1e3
"""Seconds a byte."""


def best_price(rows: Rows, budget_bytes: float) -> float:
    """The price of bytes, seconds each, with about the best bound; 0 where all fit anyway."""
    value, over = bound_at(rows, 0.0, budget_bytes)
    best, price = value, 0.0
    if over <= 0:
        return price
    low = high = FIRST_PRICE
    while over > 0 and high < MOST_PRICE:
        low, high = high, high * GROWTH
        value, over = bound_at(rows, high, budget_bytes)
        best, price = max((best, price), (value, high))
    for _ in range(STEPS):
        middle = (low * high) ** 0.5
        value, over = bound_at(rows, middle, budget_bytes)
        best, price = max((best, price), (value, middle))
        low, high = (middle, high) if over > 0 else (low, middle)
    return price


def bound_at(rows: Rows, price: float, budget_bytes: float) -> tuple[float, float]:
    """The bound at a price of seconds a byte, and the bytes over the budget there."""
    seconds, over = 0.0, -budget_bytes
    for count, own_s, bytes_ in rows:
        values = own_s + price * bytes_
        row = int(values.argmin())
        seconds += count * float(values[row])
        over += count * float(bytes_[row])
    return seconds - price * budget_bytes, over
