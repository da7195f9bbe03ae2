"""Fractional knapsack of one stage: minimum seconds within its MB, layers divisible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..bounds.knapsack_bounds import Hull, hull_of
from ..tables.arrays import Floats, Ints


class KnapsackValue(NamedTuple):
    """Minimum (infinite if nothing fits), and the multiplier of MB there."""

    least: float
    per_mb: float


class FractionalKnapsack:
    """Layers of some types with their strategies, under one linear objective.

    Args:
        runs: (layers, MB of each strategy, value of each strategy).
    """

    def __init__(self, runs: Sequence[tuple[int, Ints, Floats]]) -> None:
        hulls: list[tuple[int, Hull]] = [
            (count, hull_of(mb.astype(float), values)) for count, mb, values in runs
        ]
        self._mb = sum(count * mb[0] for count, (mb, _) in hulls)
        self._value = sum(count * values[0] for count, (_, values) in hulls)
        steps = []
        for count, (mb, values) in hulls:
            for i in range(1, len(mb)):
                cost, gain = count * (mb[i] - mb[i - 1]), count * (values[i] - values[i - 1])
                steps.append((gain / cost, cost, gain))
        self._steps = sorted(steps)

    def at(self, room_mb: float) -> KnapsackValue:
        """Minimum within so many MB."""
        room, value = room_mb - self._mb, self._value
        if room < 0:
            return KnapsackValue(float("inf"), 0.0)
        for slope, cost, gain in self._steps:
            if cost > room:
                return KnapsackValue(value + slope * room, -slope)
            room -= cost
            value += gain
        return KnapsackValue(value, 0.0)
