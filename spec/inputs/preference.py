"""The preference of ``--prefer``: the best plan, or the simplest one nearly as good."""

from __future__ import annotations

import math

from ..errors import InputError, nearest_name

PREFERENCES = ("simple", "best")
SIMPLE_WITHIN = 0.01
"""Usual fraction of the best plan's value that a simpler plan may lose."""
MOST_PERCENT = 50.0


def simple_within(text: str | None, where: str = "--prefer") -> float | None:
    """Fraction that the simplest plan may lose; None: the best plan is wanted.

    Args:
        text: ``simple``, ``simple:P%`` or ``best``; None: simple.
        where: named in errors.

    Raises:
        InputError: another word, or no percentage from 0 to 50.
    """
    head, colon, rest = ("simple" if text is None else str(text)).strip().partition(":")
    if head not in PREFERENCES or (colon and head == "best"):
        allowed = "simple, simple:PERCENT% or best"
        raise InputError(where, text, allowed, nearest_name(head, PREFERENCES))
    if head == "best":
        return None
    if not colon:
        return SIMPLE_WITHIN
    try:
        percent = float(rest.strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= MOST_PERCENT:
        raise InputError(where, text, f"simple:P% with P from 0 to {MOST_PERCENT:g}", "simple:1%")
    return percent / 100
