"""Whole numbers that searches enumerate."""

from __future__ import annotations


def divisors(number: int) -> list[int]:
    """Every divisor, ascending."""
    small, large, d = [], [], 1
    while d * d <= number:
        if number % d == 0:
            small.append(d)
            if d * d != number:
                large.append(number // d)
        d += 1
    return small + large[::-1]
