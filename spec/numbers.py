"""Whole numbers: as a person types them, and their divisors."""

from __future__ import annotations

import re

DIGITS = re.compile(r"[0-9]{1,12}")
"""``str.isdigit`` also takes ``²`` and other scripts' digits, and ``int`` refuses 4301 digits."""


def whole_number(text: str) -> int | None:
    """The number in one to twelve ASCII digits; else None."""
    return int(text) if DIGITS.fullmatch(text) else None


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
