"""Lagrangian relaxation of layers within one byte budget.

For any multiplier λ ≥ 0, ``Σ min(seconds + λ bytes) - λ budget`` is at most the layers' seconds
within the budget (weak duality of the knapsack); the best λ equals the knapsack bound with
divisible layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..space.memory_budget import Budget
from ..tables.arrays import Floats

KnapsackRows = Sequence[tuple[float, Floats, Floats]]
"""Layers of a class: count, and seconds and bytes of each option, shape (options,)."""
MemoryRows = Sequence[tuple[float, Floats, Floats]]
"""The same with bytes by memory, shape (memories, options)."""
MAX_SWEEPS = 2
"""Times that the multipliers of several memories are improved one after the other."""
MAX_STEPS, MULTIPLIER_TOLERANCE = 12, 1e-6
MAX_MULTIPLIER = 1e3
"""Seconds a byte, where nothing fits."""


def best_multiplier(rows: KnapsackRows, budget_bytes: float) -> float:
    """Near-optimal multiplier, seconds a byte; 0 if all fit anyway.

    A bound's seconds and its bytes over the budget form a line in the multiplier above every
    bound. The next multiplier is the intersection of the best line with too many bytes and the
    best with too few.
    """
    low_s, low_over = lagrangian_at(rows, 0.0, budget_bytes)
    if low_over <= 0:
        return 0.0
    smallest = [(n, seconds, bytes_, int(bytes_.argmin())) for n, seconds, bytes_ in rows]
    high_s = sum(n * float(seconds[row]) for n, seconds, _, row in smallest)
    high_over = sum(n * float(bytes_[row]) for n, _, bytes_, row in smallest) - budget_bytes
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


def best_multipliers(rows: MemoryRows, budget: Budget) -> Floats:
    """Good multipliers of each memory, shape (memories,); the best one where there is one.

    Several are improved in turn, since the bound is concave in each.
    """
    multipliers = np.zeros(len(budget))
    binding = [memory for memory in range(len(budget)) if any(b[memory].any() for _, _, b in rows)]
    for _ in range(MAX_SWEEPS if len(binding) > 1 else 1):
        for memory in binding:
            multipliers[memory] = 0.0
            priced = [(n, priced_s(s, b, multipliers), b[memory]) for n, s, b in rows]
            multipliers[memory] = best_multiplier(priced, budget[memory])
    return multipliers


def lagrangian_s(rows: MemoryRows, multipliers: Floats, budget: Budget) -> float:
    """Bound at multipliers of each memory."""
    total_s = sum(n * float(priced_s(s, b, multipliers).min()) for n, s, b in rows)
    for multiplier, budget_bytes in zip(multipliers.tolist(), budget, strict=True):
        total_s = total_s - multiplier * budget_bytes
    return total_s


def priced_s(seconds: Floats, bytes_: Floats, multipliers: Floats) -> Floats:
    """Seconds of options, with the price of their bytes by memory.

    Args:
        seconds: shape (…, options).
        bytes_: shape (memories, options).
        multipliers: shape (memories,).
    """
    for memory in multipliers.nonzero()[0].tolist():
        seconds = seconds + multipliers[memory] * bytes_[memory]
    return seconds


def lagrangian_at(
    rows: KnapsackRows, multiplier: float, budget_bytes: float
) -> tuple[float, float]:
    """Bound at a multiplier, and the bytes over the budget there."""
    total_s, over = 0.0, -budget_bytes
    for count, seconds, bytes_ in rows:
        values = seconds + multiplier * bytes_
        row = int(values.argmin())
        total_s += count * float(values[row])
        over += count * float(bytes_[row])
    return total_s - multiplier * budget_bytes, over
